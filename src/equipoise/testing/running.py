"""What the checks of all contracts share: running them by name, numbers to try, a small model from fit to file."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.artifact import load
from equipoise.balances import LinearConstraint
from equipoise.estimator import ConstrainedBNNRegressor

Check = Callable[[], None]
SINGLE_PRECISION = 1e-6  # relative; differences below it come from rounding to float32


def run_checks(checks: Iterator[tuple[str, Check]], who: str) -> None:
    """Run all checks; whatever one of them raises becomes an `AssertionError` with the names of both.

    Args:
        checks: Names and checks.
        who: The name of the implementation.
    Raises:
        AssertionError: With the name of the first check that fails.
    """
    for name, check in checks:
        try:
            check()
        except Exception as error:  # whatever outside code does, the check that found it is named
            words = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{who}: {name}: {words}") from error


def bound(check: Callable[[Any], None], implementation: Any) -> Check:
    """Return the check of this implementation as a function without arguments.

    Args:
        check: The check.
        implementation: What it is called with.
    """
    return lambda: check(implementation)


def require(condition: bool, message: str) -> None:
    """Raise an `AssertionError` with this message unless the condition holds.

    Args:
        condition: What must be true.
        message: The message of the error.
    """
    if not condition:
        raise AssertionError(message)


def require_close(actual: Tensor, expected: Tensor, rtol: float, words: str) -> None:
    """Raise an `AssertionError` unless the values agree, relative to the largest of them or to 1.

    Args:
        actual: The values to check.
        expected: What they must be, of the same shape.
        rtol: Largest relative difference.
        words: Beginning of the message.
    """
    error = float((actual - expected).abs().max())
    size = max(1.0, float(expected.abs().max()))
    got = f"expected {expected.tolist()} within {rtol * size:.2g}, got {actual.tolist()}, {error:.2g} off"
    single = (
        "; so small a difference comes from float32: write torch.as_tensor(0.1, dtype=...), not torch.as_tensor(0.1)"
    )
    require(error <= rtol * size, f"{words}: {got}{single if error < SINGLE_PRECISION * size else ''}")


def through_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as they are after a model file; raise an `AssertionError` if JSON cannot hold them.

    Args:
        settings: What `settings()` returns.
    """
    try:
        return json.loads(json.dumps(settings))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"settings() must hold what JSON can hold, but got {settings!r}: {error}") from error


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Draw standard normal numbers in float64.

    Args:
        shape: Shape of the array.
        seed: Seed of the draw.
    """
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def fitted_and_opened(implementation: type, **parameters: Any) -> ConstrainedBNNRegressor:
    """Train a small model, check that it predicts and reconciles, and return it as it is after saving and loading.

    Args:
        implementation: Class of the likelihood or posterior.
        parameters: Parameters of the estimator.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    a, b = np.sin(X[:, 0]), X[:, 1] ** 2
    Y = np.stack([a, b, a + b], 1) + 0.05 * rng.normal(size=(60, 3))
    balance = LinearConstraint([[1.0, 1.0, -1.0]])
    model = ConstrainedBNNRegressor(balance, hidden=(4,), max_epochs=6, n_draws=8, random_state=0, **parameters)
    model.fit(X, Y)
    p = model.predict_distribution(X[:5])
    results = [p.mean, p.std, *p.interval(0.9), p.sample(3), p.covariance(), p.ledger().total, p.log_prob(Y[:5])]
    results += [p.measured().sample(2), model.reconcile(X[:5], Y[:5], 0.1).mean]
    for result in results:
        require(bool(np.isfinite(np.asarray(result)).all()), "all results of a fitted model must be finite")
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := Path(folder) / "model.safetensors")
        again = load(path, implementations=[implementation])
        same = np.array_equal(again.predict_distribution(X[:5]).log_prob(Y[:5]), p.log_prob(Y[:5]))
        require(same, "a model that was opened again must have the same density")
    return again
