"""How a piece of a measured table is reconciled, by balances alone or with a model, and the columns that come of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from equipoise.app.commands.measured import MeasuredTable, Piece

if TYPE_CHECKING:
    from equipoise.app.job import Plant
    from equipoise.artifact import Description
    from equipoise.balances import LinearConstraint
    from equipoise.estimator import ConstrainedBNNRegressor
    from equipoise.reconciliation import GlobalTest, GrossErrorTest, Logbook

OF_VARIABLE = ("reconciled", "half-width", "adjustment")
OF_TEST = ("global statistic", "global threshold", "global alarm")
OF_SUSPECT = ("suspect", "suspect kind", "suspect error", "suspect error half-width", "suspect alternatives")
OF_DRAWS = "effective draws"


class Reconciler(Protocol):
    """Turns pieces of a table into columns and logbooks."""

    def table(self, path: Path, time: str | None) -> MeasuredTable:
        """The table that is to be read from a file."""
        ...

    def of(self, piece: Piece) -> tuple[dict[str, Any], Logbook]:
        """The columns that are added to a piece, and what happened in it."""
        ...


@dataclass(frozen=True)
class Classical:
    """By the balances alone.

    Args:
        plant: What is measured, and how well.
        constraint: Its balances.
        level: Probability of intervals, and confidence level of tests.
    """

    plant: Plant
    constraint: LinearConstraint
    level: float

    @classmethod
    def of_plant(cls, plant: Plant, level: float) -> Classical:
        """Raises JobError if balances or tolerances cannot be used."""
        _ = plant.tolerance_std
        return cls(plant, plant.constraint(), level)

    def table(self, path: Path, time: str | None) -> MeasuredTable:
        return MeasuredTable(self.plant, path, self.constraint.outputs, self.constraint.columns, time)

    def of(self, piece: Piece) -> tuple[dict[str, Any], Logbook]:
        from equipoise.reconciliation import reconcile

        inputs, tolerance = piece.exact if self.constraint.columns else None, self.plant.tolerance_std
        result = reconcile(
            piece.values, piece.std, self.constraint, inputs, tolerance=tolerance or None, level=self.level
        )
        test = result.likelihood_ratio_test()
        columns = {**_values(result, result.values), **_tests(result.global_test(), test)}
        return columns, result.logbook(piece.time, test)


@dataclass(frozen=True)
class WithModel:
    """By a trained model's prediction and balances.

    Args:
        plant: How well outputs are measured, as far as the job says it.
        model: The model.
        level: Probability of intervals, and confidence level of tests.
    """

    plant: Plant
    model: ConstrainedBNNRegressor
    level: float

    @classmethod
    def load(cls, plant: Plant, path: Path, level: float) -> WithModel:
        """Raises JobError if a sensor is not one of the model's outputs, or a balance or tolerance not the model's."""
        from equipoise.app.job import JobError
        from equipoise.artifact import describe, model_file as artifact
        from equipoise.balances import did_you_mean

        model = artifact.load(path)
        for name in plant.accuracies:
            if name not in model.output_names_:
                rule = f"{plant.file}: [sensors] must name outputs of '{path.name}', whose inputs are exact"
                raise JobError(f"{rule}, but got {name!r}. {did_you_mean(name, model.output_names_)}")
        said = describe(path)
        _check_balances(plant, said, path.name)
        _check_tolerances(plant, said, path.name)
        return cls(plant, model, level)

    def table(self, path: Path, time: str | None) -> MeasuredTable:
        from equipoise.app.report import input_names

        outputs = tuple(self.model.output_names_)
        return MeasuredTable(self.plant, path, outputs, tuple(input_names(self.model)), time, learned=True)

    def of(self, piece: Piece) -> tuple[dict[str, Any], Logbook]:
        import numpy as np

        from equipoise.app.commands.rows import in_kind

        std = np.broadcast_to(piece.std, piece.values.shape)
        X = in_kind(self.model, piece.exact)
        result = self.model.reconcile(X, in_kind(self.model, piece.values), std, level=self.level)
        test = result.likelihood_ratio_test()
        columns = {**_values(result, result.mean), **_tests(result.global_test(), test)}
        return {**columns, OF_DRAWS: result.effective_draws}, result.logbook(piece.time, test)


def _check_balances(plant: Plant, said: Description, file: str) -> None:
    """Raise JobError if the job has balances, and they are not those of the model, which cannot be changed."""
    from equipoise.app.job import JobError

    columns = (*said.columns.inputs, *said.columns.known, *said.columns.outputs)
    of_model = {balance.name: balance.text for balance in said.balances}
    for name in dict.fromkeys((*plant.balances, *of_model)) if plant.balances else ():
        here, there = plant.balances.get(name), of_model.get(name)
        if here is None or there is None or not _same_balance(here, plant.columns, there, columns):
            got = (
                f"{here!r} for {name!r}, which is {there!r} there"
                if here and there
                else f"{name!r} in one of them only"
            )
            rule = f"{plant.file}: [balances] must be left out, or be those of '{file}'"
            raise JobError(f"{rule}, but got {got}. Take the job that the model was fitted with.")


def _same_balance(here: str, columns_here: tuple[str, ...], there: str, columns_there: tuple[str, ...]) -> bool:
    """Whether two texts are the same equation, whatever it is multiplied by."""
    from equipoise.balances import parse_equation

    lines = []
    for text, columns in ((here, columns_here), (there, columns_there)):
        equation = parse_equation(text, columns)
        terms = {name: value for name, value in equation.coefficients.items() if value}
        unit = terms[min(terms)] if terms else 1.0
        lines.append({name: value / unit for name, value in {**terms, "": equation.constant}.items()})
    one, other = lines
    return one.keys() == other.keys() and all(abs(one[name] - other[name]) <= 1e-9 * abs(one[name]) for name in one)


def _check_tolerances(plant: Plant, said: Description, file: str) -> None:
    """Raise JobError if the job has tolerances other than those that the model was fitted with."""
    from equipoise.app.job import Job, JobError

    of_model = Job.parse(said.job).tolerances if said.job else {}
    for name, value in plant.tolerances.items():
        if name not in of_model or of_model[name] != value:
            rule = f"{plant.file}: [tolerances] must be left out with a model, whose own count, or be those of '{file}'"
            raise JobError(f"{rule}, but got another one for {name!r}. Leave it out, or fit the model with it.")


def added_columns(variables: tuple[str, ...]) -> list[str]:
    """Names of the columns that may be added to a table."""
    return [*(f"{name} {part}" for name in variables for part in OF_VARIABLE), *OF_TEST, *OF_SUSPECT, OF_DRAWS]


def _values(result: Any, values: Any) -> dict[str, Any]:
    import numpy as np

    shape, parts = (-1, len(result.variables)), (values, result.half_widths.after, result.adjustments)
    columns = {part: np.asarray(given).reshape(shape) for part, given in zip(OF_VARIABLE, parts, strict=True)}
    return {f"{name} {part}": columns[part][:, j] for j, name in enumerate(result.variables) for part in OF_VARIABLE}


def _tests(check: GlobalTest, test: GrossErrorTest) -> dict[str, Any]:
    """Of each row: its global test, and who is suspect of which error."""
    import numpy as np
    import pandas as pd

    from equipoise.reconciliation import half_width

    rows = np.arange(len(test.z))
    names = np.array([*(c.name for c in test.candidates), None], dtype=object)
    kinds = np.array([*(c.kind for c in test.candidates), None], dtype=object)
    seen = test.worst >= 0
    std = np.where(seen, test.std[rows, test.worst], np.nan)
    told = _checked(check)
    suspect = (
        pd.array(names[test.worst], dtype="string"),
        pd.array(kinds[test.worst], dtype="string"),
        test.z[rows, test.worst] * std,
        half_width(test.level) * std,
        pd.array(_alternatives(test), dtype="string"),
    )
    return dict(zip((*OF_TEST, *OF_SUSPECT), (*told, *suspect), strict=True))


def _checked(check: GlobalTest) -> tuple[Any, Any, Any]:
    """Statistic, threshold and alarm of each row; empty where there is nothing to test."""
    import numpy as np
    import pandas as pd

    idle = np.isnan(check.threshold)
    alarm = pd.array(np.where(idle, None, check.alarm), dtype="boolean")
    return np.where(idle, np.nan, check.statistic), check.threshold, alarm


def _alternatives(test: GrossErrorTest) -> Any:
    """Of each row the names of others that would explain it as well as its suspect; None without any."""
    import numpy as np

    from equipoise.reconciliation import equally_suspect

    others = equally_suspect(test)
    others[np.arange(len(others)), test.worst] = False
    found, rows = np.full(len(others), None, dtype=object), np.flatnonzero(others.any(axis=1))
    sets, which = np.unique(others[rows], axis=0, return_inverse=True)
    for k, chosen in enumerate(sets):
        found[rows[which == k]] = ", ".join(test.candidates[j].name for j in np.flatnonzero(chosen))
    return found
