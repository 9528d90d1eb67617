"""A network as its description in a header, and the network rebuilt from description and tensors.

Tensors alone do not determine a network: the description has its sizes, which balances are exact, and which sensors are
learned or given. It comes from the fitted network itself, not from the tables that users see.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from equipoise.artifact.configuration import describe_prior, implementation_named, parse_prior, settings_of
from equipoise.artifact.header import ArtifactError, NamedPrior, Network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from equipoise.data import Standardizer
    from equipoise.gaussian import LogNormalVariance, VariancePosterior
    from equipoise.network import ConstrainedBNN, Imposition, Likelihood, PosteriorFactory, WeightDraws


def describe_network(model: ConstrainedBNN) -> Network:
    """Describe a fitted network: what is needed beside its tensors to rebuild it."""
    network, layer, sensor = model.network, model.conditioning, model.sensor
    n_inputs, *hidden, n_units = network.sizes
    offset = None if layer is None else layer.offset
    tolerances = () if layer is None else _kinds(layer.tolerance, "fixed", "exact")
    description = {
        "n_inputs": n_inputs,
        "n_outputs": network.n_outputs,
        "hidden": hidden,
        "activation": network.activation,
        "sensor_head": n_units == 3 * network.n_outputs,
        "prior_std": network.posterior.prior_std,
        "posterior": network.posterior.name,
        "posterior_settings": settings_of(network.posterior),
        "imposition": "conditioning" if model.imposition is None else model.imposition.name,
        "imposition_settings": {} if model.imposition is None else settings_of(model.imposition),
        "likelihood": model.likelihood.name,
        "likelihood_settings": settings_of(model.likelihood),
        "tolerances": tolerances,
        "tolerance_priors": () if layer is None else _priors(layer.tolerance),
        "offsets": len(tolerances) * [False] if offset is None else offset.learned.tolist(),
        "sensors": None if sensor is None else _kinds(sensor, "given", "none"),
    }
    return Network.model_validate(description)


def rebuild_network(
    network: Network, standardizer: Standardizer, state: dict[str, Tensor], implementations: Sequence[type] = ()
) -> ConstrainedBNN:
    """Build the network that a header describes and fill it with its tensors.

    Args:
        network: The description.
        standardizer: The standardizer of the fit; it has the balances.
        state: The tensors, by their names in the network's `state_dict`.
        implementations: Classes that do not belong to this package, of likelihoods and posteriors among others.
    Returns: The network in evaluation mode, on the CPU.
    Raises: KeyError, RuntimeError or ValueError, if tensors and description do not agree.
    """
    import torch

    from equipoise.gaussian import ConditioningLayer
    from equipoise.network import BayesianMLP, ConstrainedBNN

    mlp = BayesianMLP(
        network.n_inputs,
        network.n_outputs,
        network.hidden,
        network.activation,
        sensor_head=network.sensor_head,
        prior_std=network.prior_std,
        generator=torch.Generator(),  # the starting weights are replaced
    )
    draws = draws_class(network, implementations)
    mlp = mlp.with_posterior(draws.blank(mlp.sizes, network.prior_std, **network.posterior_settings))
    sensor = None if network.sensors is None else _variances(network.sensors)
    layer = rounding = None
    constraint = standardizer.constraint if network.tolerances else None  # some methods predict without their balances
    if constraint is not None:
        tolerance = _tolerances(network, implementations)
        tolerance = _sampled(tolerance, state, "conditioning.tolerance")
        layer = ConditioningLayer(standardizer.balances(), tolerance, offset=torch.tensor(network.offsets))
        rounding = torch.zeros(constraint.n_balances, dtype=torch.float64)
        _check_learned("balances", network.tolerances, state["conditioning.tolerance.learned"])
    if sensor is not None and network.sensors is not None:
        sensor = _sampled(sensor, state, "sensor")
        _check_learned("sensors", network.sensors, state["sensor.learned"])
    likelihood = likelihood_of(network, implementations)
    imposition = imposition_of(network, implementations)
    model = ConstrainedBNN(mlp, layer, likelihood, sensor, rounding, imposition)
    model.load_state_dict(state)
    return model.eval()


def likelihood_of(network: Network, implementations: Sequence[type] = ()) -> Likelihood:
    """Make the likelihood that a header names.

    Args:
        network: The description.
        implementations: Classes that do not belong to this package, of likelihoods among others.
    Raises: ArtifactError, if no class has the name.
    """
    from equipoise.network import LIKELIHOODS, Likelihood

    if network.likelihood in LIKELIHOODS:
        return LIKELIHOODS[network.likelihood]
    made = implementation_named("likelihood", network.likelihood, implementations, Likelihood)
    return made(**network.likelihood_settings)


def posterior_of(network: Network, implementations: Sequence[type] = ()) -> PosteriorFactory:
    """Return what makes the posterior that a header names; arguments are those of `likelihood_of`."""
    made: Any = draws_class(network, implementations)
    return partial(made, **network.posterior_settings) if network.posterior_settings else made


def draws_class(network: Network, implementations: Sequence[type] = ()) -> type[WeightDraws]:
    """Return the class of what draws the weights; arguments are those of `likelihood_of`."""
    from equipoise.network import POSTERIORS, LinearisedLaplace, Members, WeightDraws

    own = {Members.name: Members, LinearisedLaplace.name: LinearisedLaplace, **POSTERIORS}
    if network.posterior in own:
        return own[network.posterior]  # type: ignore[return-value]
    return implementation_named("posterior", network.posterior, implementations, WeightDraws)


def imposition_of(network: Network, implementations: Sequence[type] = ()) -> Imposition | None:
    """Make the imposition that a header names, None for conditioning; arguments are those of `likelihood_of`."""
    if network.imposition == "conditioning":
        return None
    from equipoise.network import Imposition

    made = implementation_named("imposition", network.imposition, implementations, Imposition)
    return made(**network.imposition_settings)


def estimator_class(name: str, classes: Sequence[type]) -> type:
    """Return the class of estimators with a `file_name`.

    Args:
        name: The name in the file.
        classes: Classes to search.
    Raises: ArtifactError, if no class has the name.
    """
    for each in classes:
        if getattr(each, "file_name", None) == name:
            return each
    rule = f"The model's class must be known, but got {name!r}"
    raise ArtifactError(f"{rule}. Pass its class: load(path, implementations=[...]).")


def _priors(tolerance: VariancePosterior) -> tuple[NamedPrior | None, ...]:
    """Describe the priors that a file has to name; empty where all are log-normal."""
    priors = tuple(None if prior is None else describe_prior(prior) for prior in tolerance.priors)
    return priors if any(priors) else ()


def _tolerances(network: Network, implementations: Sequence[type]) -> VariancePosterior:
    """Make the posterior of the tolerances, whose numbers those of the file will replace."""
    if not network.tolerance_priors:
        return _variances(network.tolerances)
    import torch

    from equipoise.gaussian import tolerance_posterior

    priors = [1.0 if each is None else parse_prior(each, implementations) for each in network.tolerance_priors]
    names = [str(k) for k in range(len(priors))]
    return tolerance_posterior(dict(zip(names, priors, strict=True)), names, torch.ones(len(priors)))


def _kinds(variances: VariancePosterior, positive: str, zero: str) -> tuple[str, ...]:
    """Return the kind of each variance: "learned", or the given words for a fixed one above 0 and for 0."""
    entries = zip(variances.learned.tolist(), variances.fixed.tolist(), strict=True)
    return tuple("learned" if learned else positive if fixed > 0 else zero for learned, fixed in entries)


def _variances(kinds: Sequence[str]) -> LogNormalVariance:
    """Make a posterior of as many variances, whose numbers those of the file will replace."""
    import torch

    from equipoise.gaussian import LogNormalVariance

    ones = torch.ones(len(kinds), dtype=torch.float64)
    return LogNormalVariance(ones, ones, ones)


def _sampled(variances: VariancePosterior, state: dict[str, Tensor], name: str) -> VariancePosterior:
    """Make a posterior of kept draws, if the file has any; otherwise return the posterior as it is."""
    from equipoise.gaussian import SampledVariances

    rho = state.get(f"{name}.rho")
    return variances if rho is None else SampledVariances(variances, rho.clone())


def _check_learned(parts: str, kinds: Sequence[str], learned: Tensor) -> None:
    described = [kind == "learned" for kind in kinds]
    if described != learned.tolist():
        raise ValueError(f"learned {parts} are {described} in the header, but {learned.tolist()} in the tensors")
