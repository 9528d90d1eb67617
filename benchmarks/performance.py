"""`python -m benchmarks.performance`: write docs/performance.md from benchmarks/results.json, number by number."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import hierarchies, markdown, scaling
from benchmarks.anatomy_table import rows_of
from benchmarks.results import read, write_text
from benchmarks.targets import GOALS, TARGETS, Outcome

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"

INTRODUCTION = """# Performance

<!-- Written by `python -m benchmarks.performance` from benchmarks/results.json. Change benchmarks/performance.py. -->

How fast the library is beside everything one could pick instead, how its cost grows, and what limits it. Ratios are our
time over the other's in the same run: below 1 we are faster.

    make bench                          # the targets and all other timings, into benchmarks/results.json
    python -m benchmarks.scaling        # the curves and docs/figures/scaling.svg
    python -m benchmarks.performance    # this page

`make bench` installs the peers into an environment of their own, `.venv-bench`; without them their rows say so.
"""

MEASURED = """## How it is measured

Processor time of the whole process, one thread each (torch, BLAS, XLA). The contestants of a row take turns in one
process, round after round; a time is the best of all rounds, since whatever disturbs a measurement only adds to it. The
*spread* is the interquartile range of the ratio over the rounds. Before anything is timed, every contestant's answer is
compared with ours: densities and means to the precision of its numbers, gradients of layers, and, where each draws at
random, moments to within six standard errors.

- **`train_step_vs_plain_torch`**: forward, negative ELBO, backward and Adam, batch 512, network 3-64-64-16, eight
  outputs, two balances; the slower of the paper's likelihood (L1) and the joint one with learned sensors (L2). Plain
  torch: `nn.Sequential` with the same layers, a heteroscedastic head, fused Adam; no Bayes, no balances.
- **`train_step_vs_numpyro`**: the same model in NumPyro, `SVI` with `AutoNormal` and an analytic KL, a compiled scan of
  steps; balances by a division, as the library does; single precision throughout, where ours is double from the network
  on. It draws weights once per batch, we draw per row: half the matrix products, and noisier gradients.
- **`time_to_quality_vs_best_peer`**: L2 on the battery study's 12,600 training rows until the NLL of a mixture of 64
  draws on its validation rows is reached. Plans double in length until one arrives, and the time of that one counts.
  The peer has the best of several rates for each plan, and its compilation is free (ours falls into the first plan,
  which does not count); nothing else of it was tuned, while our defaults were developed on data of this study. The
  quality asked for was chosen after a first trial of both, so look at all attempts, which are listed above. NumPyro
  stands for all peers: its step is the fastest of those that draw weights per batch, as they all do.
- **`conditioning_vs_fixed_projection`**: mean and variance with gradients, batch 512, eight outputs, two balances,
  beside one fixed matrix for the mean and one for the variance, found once: the least that a layer can do.
- **`conditioning_vs_textbook`**: coupled balances, beside `S = B V Bᵀ + R`, `cholesky`, `cholesky_solve` and the
  diagonal of `Σ_C`, by autograd; the worse of the two sizes.
- **`conditioning_vs_cvxpylayers`, `conditioning_vs_qpth`**: their solution is the conditioned mean; they have no
  variance. qpth runs as it comes. In 0.0.16 its check of the quadratic form factorised all rows once per row, which
  took 142 ms in all, and the goal was met; in 0.0.18 it costs nothing, and it is missed. Its balances are equalities
  with slack; folded into the quadratic form, which leaves no constraint, it was a quarter faster still. qpth and ours
  are called ten times in a row. A fixed projection, the least that a layer can do, is timed with them, for the note.
- **`predict_vs_bare_gemm`**: mean and full ledger of 1,000 draws × 4,200 rows beside the matrix products and
  activations of the same draws, weights ready made, 64, 128 and 256 rows at a time, of which the fastest counts.
- **`predict_vs_best_peer`**: the same beside mean and variance of the conditioned mixture by NumPyro's `Predictive`
  (draw by draw, and all at once), Pyro's, and a loop over bayesian-torch; the fastest counts.
"""

LIMITS = """## What limits each path

- **Training step.** All of it but Adam is one compiled call (`equipoise.fast`, by numba), since at this size torch's
  operators cost more by being called than by what they do. What is left is arithmetic: a random number for every unit
  of every row, and matrix products for means and for variances, of which plain torch has half. They are tiles held in
  registers, in vectors as wide as the processor's; torch's own products (MKL) take more than twice as long on this
  one, which is AMD's, and that is part of the ratio to plain torch: where MKL does better it will be larger, which was
  not measured. The price is about 18 s of compiling, once on a machine for each kind of numbers. Layers wider than 256,
  more than 32 coupled balances, offsets, likelihoods of one's own and other devices are differentiated by autograd over
  the definition, with the network's part compiled where it is on the processor and not as wide. Such a step takes 1.9
  times as long as it did by gradients in closed form, which were given up (battery's network, 512 rows, AMD EPYC).
- **Conditioning, balances apart.** A division per balance; the number of operators, forward and backward, and what
  autograd costs around them: a fixed projection, which does next to nothing, takes 0.01 of qpth's time itself.
  Gradients are autograd's. Those in closed form, which were given up, were faster: forward and backward took 0.76 of
  this at (8, 2), 0.93 at (30, 10) and 0.96 at (100, 50), measured beside each other; the targets were met with them.
- **Conditioning, coupled balances.** The Cholesky inverse of an m × m matrix per row, O(m³), and products with it.
- **Prediction.** The network is compiled as above, which saves more than half of the bare part; draws are shared by
  as many threads as torch has. Conditioning and ledger work in double precision on arrays of draws × rows × outputs, in
  blocks that stay in the cache and in memory that is used again; what is left is bound by how often these pass through
  it.
"""

TRIED = """## What was tried and did not pay

- *Weight sampling in groups*: four antithetic draws of all weights per batch instead of one per row and unit. The
  network's part of a step took 0.45 of plain torch's time against 0.98 by local reparameterisation. At equal epochs on
  the battery data its test NLL was 0.6 nats worse, at 1.5 times the epochs 0.2 better: no gain in time to quality. With
  eight draws it was 0.5 nats worse at equal epochs.
- *Random signs* instead of normal numbers per row and unit (flipout): as many products, and signs are no cheaper to
  make than half of the normal numbers, which is all that opposite noise in the halves of a batch takes.
- *numpy's generators*: twice torch's time for normal numbers in single precision.
- *torch's compiler*: `torch.compile` of the gradient in torch's operators, random numbers made outside, took 0.59 of
  the time that it takes without, 1.25 of the plain step before clipping and Adam (one run, on a machine at work), and
  half a minute to compile. It also needs a C++ compiler on the user's machine, which numba does not.
- *A compiled layer*: conditioning of balances apart as one compiled function, forward and backward, behind autograd. 88
  instead of 101 µs at (8, 2): what is left is autograd's own work, and not worth a second way.
- *oneDNN's matrix products* (through an operator that torch keeps to itself): 25 instead of MKL's 38 µs for 512 × 64
  times 64 × 64, of which the tiles take 16.
"""


def page(found: Mapping[str, Any]) -> str:
    """The whole page from what a results file holds."""
    parts = [INTRODUCTION, _targets(found), MEASURED, _others(found), _anatomy(found), _scaling(found), LIMITS, TRIED]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def _targets(found: Mapping[str, Any]) -> str:
    measured = {entry["name"]: entry for entry in found["targets"]}
    rows = [_target_row(measured.get(target.name, {"name": target.name})) for target in TARGETS]
    header = ("target", "ours beside", "ratio", "goal", "", "ours [ms]", "other [ms]", "spread")
    notes = [f"- `{name}`: {entry['note']}." for name, entry in measured.items() if entry.get("note")]
    return "\n".join(
        ["## Targets\n", markdown.table(header, rows, right=(2, 3, 5, 6, 7)), "", *notes, "", _where(found)]
    )


def _target_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("ours_ms", "other_ms", "spread")
    outcome = Outcome(entry["name"], *(entry.get(key) for key in keys))
    ratio, *times = map(markdown.number, (outcome.ratio, *(entry.get(key) for key in keys)))
    goal = GOALS[outcome.name]
    beside = entry.get("beside") or goal.other
    return (f"`{outcome.name}`", f"{goal.ours} beside {beside}", ratio, f"≤ {goal.goal:g}", outcome.verdict, *times)


def _where(found: Mapping[str, Any]) -> str:
    """The machine in general terms, versions, and peers that could not be run."""
    machine, versions = found.get("machine", {}), found.get("versions", {})
    clock = f" of {machine['clock_ghz']} GHz" if machine.get("clock_ghz") else ""
    where = f"Machine: {machine.get('cores', '?')} {machine.get('architecture', '')} cores{clock}"
    where += f" ({machine['processor']}), " if machine.get("processor") else ", "
    where += f"{machine.get('memory_gb', '?')} GB of memory, {machine.get('system', '')}; one thread used."
    if (load := machine.get("load", 0.0)) > 1.5:
        where += f" **Others were at work on it (load {load}): these times are too long, and the ratios uncertain.**"
    listed = "Versions: " + ", ".join(f"{name} {number}" for name, number in versions.items()) + "."
    absent = [f"- {package}: {why}" for package, why in found.get("absent", {}).items()]
    return "\n".join([where, "", listed, *(["", "Peers that could not be run:", "", *absent] if absent else [])])


def _others(found: Mapping[str, Any]) -> str:
    """Other libraries' training steps without balances."""
    steps = [entry for entry in found["results"] if entry.get("benchmark") == "steps"]
    if not steps:
        return ""
    rows = [(e["other"], *map(markdown.number, (e["ours_ms"], e["other_ms"], e["ratio"]))) for e in steps]
    header = ("step of", "ours, with balances [ms]", "theirs [ms]", "ours / theirs")
    text = "What Bayes alone costs elsewhere: our step *with* balances (L1) beside others' *without*.\n"
    return "\n".join(["## Training steps of other libraries\n", text, markdown.table(header, rows, right=(1, 2, 3))])


def _anatomy(found: Mapping[str, Any]) -> str:
    if "anatomy" not in found:
        return ""
    text = (
        "A step of L2 with learned sensors, in milliseconds. Before: random numbers were compiled already, and what is "
        "left\nis divided as torch's profiler has it. After: parts as they are alone, and what is left.\n"
    )
    header = ("part", "before: autograd over the ELBO", "after: compiled")
    rows = rows_of(found["anatomy"])
    return "\n".join(["## Where the training step's time goes\n", text, markdown.table(header, rows, right=(1, 2))])


def _scaling(found: Mapping[str, Any]) -> str:
    if "scaling" not in found:
        return ""
    curves = {entry["name"]: [scaling.Point(**point) for point in entry["points"]] for entry in found["scaling"]}
    figure = "![Time and memory over size](figures/scaling.svg)\n"
    text = "Slopes of the logarithms over the upper half of each curve; 1 is linear, the dotted line of the figure.\n"
    trees = hierarchies.sentences(found["hierarchies"]).replace("\n", "\n\n")
    return "\n".join(["## Scale\n", text, scaling.table(curves), "", figure, trees])


def main() -> None:
    """Write the page."""
    write_text(PAGE, page(read(RESULTS)))


if __name__ == "__main__":
    main()
