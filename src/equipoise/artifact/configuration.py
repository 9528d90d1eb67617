"""Parameters of an estimator as the `Configuration` in a header, and back."""

from __future__ import annotations

import json
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.artifact.header import (
    ArtifactError,
    ByName,
    Configuration,
    Estimator,
    NamedPrior,
    Prior,
    Setting,
)

if TYPE_CHECKING:
    from equipoise.estimator import ConstrainedBNNRegressor
    from equipoise.gaussian import VariancePrior
    from equipoise.training import TrainingPlan


def describe_configuration(model: ConstrainedBNNRegressor) -> Configuration:
    """Describe the parameters of an estimator, without its balances and without what is not kept in a file."""
    from equipoise.network import as_likelihood, posterior_name

    is_seeded = isinstance(model.random_state, numbers.Integral)
    parameters: dict[str, Any] = {name: getattr(model, name) for name in Configuration.model_fields}
    parameters |= {
        "sensor_std": _describe_setting(model.sensor_std),
        "tolerance": _describe_setting(model.tolerance),
        "likelihood": as_likelihood(model.likelihood).name,
        "posterior": posterior_name(model.posterior),
        "offset": bool(model.offset),
        "hidden": tuple(map(int, model.hidden)),
        "training": None if model.training is None else asdict(model.training),
        "random_state": int(model.random_state) if is_seeded else None,
    }
    return Configuration(**parameters)


NOT_KEPT = {"constraint", "device", "checkpoint", "verbose"}  # the balances have a part of their own


def describe_estimator(model: ConstrainedBNNRegressor) -> Estimator:
    """Describe the class of an estimator, its parameters beyond the configuration, and what its recipe adds.

    Wall-clock times are left out, so that the same fit gives the same file.
    """
    others = model.get_params(deep=False).keys() - Configuration.model_fields.keys() - NOT_KEPT
    added = getattr(model, "_added", {})
    return Estimator(
        name=model.file_name,
        parameters={name: getattr(model, name) for name in sorted(others)},
        attributes={name: value for name, value in added.items() if not name.endswith("seconds_")},
    )


def parse_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return an estimator's parameters beyond the configuration, in which sequences are tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}


def parse_configuration(configuration: Configuration, implementations: Sequence[type] = ()) -> dict[str, Any]:
    """Return the estimator's parameters, by name, from their description.

    Args:
        configuration: The description.
        implementations: Classes that do not belong to this package, of priors of tolerances among others.
    Raises: ArtifactError, if no class has the name of a prior.
    """
    parameters = {name: getattr(configuration, name) for name in Configuration.model_fields}
    parameters["sensor_std"] = _parse_setting(configuration.sensor_std, implementations)
    parameters["tolerance"] = _parse_setting(configuration.tolerance, implementations)
    if configuration.training is not None:
        parameters["training"] = parse_plan(configuration.training)
    return parameters


def parse_plan(content: Mapping[str, Any]) -> TrainingPlan:
    """Return the training plan with the fields in `content`; unknown fields are left out.

    Older files have no `temperature`: it was 1.
    """
    from equipoise.training import TrainingPlan

    names = {field.name for field in fields(TrainingPlan)}
    values: dict[str, Any] = {"temperature": 1.0} | dict(content)
    return TrainingPlan(**{name: value for name, value in values.items() if name in names})


def _describe_setting(value: Any) -> Setting:
    """Describe a setting of sensors or tolerances; of standard deviations per row only their shape is kept."""
    from equipoise.gaussian import TolerancePrior, VariancePrior

    if value is None or isinstance(value, str):
        return value
    if isinstance(value, numbers.Real):
        return float(value)
    if type(value) is TolerancePrior:
        return Prior(**value.settings())
    if isinstance(value, VariancePrior):
        return describe_prior(value)
    if hasattr(value, "items") and np.ndim(value) < 2:  # a mapping or a pandas Series
        return ByName(by_name={name: _describe_setting(entry) for name, entry in value.items()})  # type: ignore[misc]
    array = np.asarray(value, dtype=float)
    return tuple(array.tolist()) if array.ndim == 1 else f"given per row, shape {array.shape}"


def describe_prior(prior: VariancePrior) -> NamedPrior:
    """Describe a prior of a class that the library need not know."""
    return NamedPrior(prior=prior.name, settings=settings_of(prior))


def parse_prior(description: NamedPrior, implementations: Sequence[type]) -> VariancePrior:
    """Make the prior that a header names.

    Args:
        description: Its name and settings.
        implementations: Classes that do not belong to this package, of priors among others.
    Raises: ArtifactError, if no class has the name.
    """
    from equipoise.gaussian import PRIORS, VariancePrior

    made: Any = PRIORS.get(description.prior)
    if made is None:
        made = implementation_named("prior of tolerances", description.prior, implementations, VariancePrior)
    return made(**description.settings)


def implementation_named(part: str, name: str, implementations: Sequence[type], contract: type) -> type:
    """Return the class with this name among those of a contract.

    Args:
        part: The part of the model that it is for, for the message.
        name: Its name in the file.
        implementations: Classes that do not belong to this package, of all contracts.
        contract: The abstract class from which it must derive: kinds of parts may have the same names.
    Raises: ArtifactError, if there is none.
    """
    candidates = [implementation for implementation in implementations if issubclass(implementation, contract)]
    for implementation in candidates:
        if getattr(implementation, "name", None) == name:
            return implementation
    others = ", ".join(f"{other.__name__} is named {getattr(other, 'name', None)!r}" for other in candidates)
    rule = f"The model's {part} must be known, but got {name!r}"
    advice = (
        "Pass its class: load(path, implementations=[...]); to a command, by EQUIPOISE_IMPLEMENTATIONS=module:Class"
    )
    raise ArtifactError(f"{rule}. {advice}; {others}." if others else f"{rule}. {advice}.")


def settings_of(part: Any) -> dict[str, Any]:
    """Return the settings of a part of a model.

    Args:
        part: A likelihood, a posterior, an imposition or balances.
    Raises: ArtifactError, if a model file cannot hold them.
    """
    settings = part.settings()
    try:
        json.dumps(settings)
    except (TypeError, ValueError) as error:
        rule = f"settings() of {type(part).__name__} must hold what JSON can hold, but got {settings!r}"
        advice = "Return numbers, texts, lists and mappings of them; arrays of balances are returned by arrays()"
        raise ArtifactError(f"{rule}. {advice}.") from error
    return settings


def _parse_setting(setting: Setting, implementations: Sequence[type]) -> Any:
    """Return the setting of sensors or tolerances from its description."""
    from equipoise.gaussian import TolerancePrior

    if isinstance(setting, Prior):
        return TolerancePrior(**setting.model_dump())
    if isinstance(setting, NamedPrior):
        return parse_prior(setting, implementations)
    if isinstance(setting, ByName):
        return {name: _parse_setting(entry, implementations) for name, entry in setting.by_name.items()}
    return np.array(setting) if isinstance(setting, tuple) else setting
