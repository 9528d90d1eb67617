"""Reconcilers of a measured table, by balances alone or with a model, and the columns that they add to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from equipoise.app.commands.measured_table import MeasuredChunk, MeasuredTable
from equipoise.app.commands.table_rows import frame_or_array

if TYPE_CHECKING:
    from equipoise.app.job import Plant
    from equipoise.artifact import Description
    from equipoise.balances import LinearConstraint
    from equipoise.estimator import ConstrainedBNNRegressor
    from equipoise.reconciliation import GlobalTest, GrossErrorTest, Logbook

VARIABLE_COLUMNS = ("reconciled", "half-width", "adjustment")
TEST_COLUMNS = ("global statistic", "global threshold", "global alarm")
SUSPECT_COLUMNS = ("suspect", "suspect kind", "suspect error", "suspect error half-width", "suspect alternatives")
DRAWS_COLUMN = "effective draws"


class Reconciler(Protocol):
    """Turns chunks of a measured table into columns and logbooks."""

    def measured_table(self, path: Path, time: str | None) -> MeasuredTable:
        """Return the table of a file, with the columns that this reconciler needs of it.

        Args:
            path: The file.
            time: The column of times.
        """
        ...

    def reconcile(self, chunk: MeasuredChunk) -> tuple[dict[str, Any], Logbook]:
        """Reconcile a chunk.

        Returns: The columns that are added to it, `(rows,)` each, and the logbook of its rows.
        """
        ...


@dataclass(frozen=True)
class BalanceReconciler:
    """Reconciles measured values by balances alone.

    Args:
        plant: The sensors and their accuracies.
        constraint: The balances.
        level: Probability of intervals, and confidence level of tests.
    """

    plant: Plant
    constraint: LinearConstraint
    level: float

    @classmethod
    def of_plant(cls, plant: Plant, level: float) -> BalanceReconciler:
        """Make the reconciler of a plant. Raises JobError if its balances or tolerances cannot be used.

        Args:
            plant: The plant's job.
            level: Confidence level of tests and intervals.
        """
        _ = plant.tolerance_std
        return cls(plant, plant.constraint(), level)

    def measured_table(self, path: Path, time: str | None) -> MeasuredTable:
        """Return the table of a file, with the outputs of the balances, and their inputs as exact columns.

        Args:
            path: The table's file.
            time: Name of the column with times; None for none.
        """
        return MeasuredTable(self.plant, path, self.constraint.outputs, self.constraint.columns, time)

    def reconcile(self, chunk: MeasuredChunk) -> tuple[dict[str, Any], Logbook]:
        """Reconcile a chunk: the columns that are added to it, and the logbook of its rows."""
        from equipoise.reconciliation import reconcile

        inputs, tolerance = chunk.exact if self.constraint.columns else None, self.plant.tolerance_std
        result = reconcile(
            chunk.values, chunk.std, self.constraint, inputs, tolerance=tolerance or None, level=self.level
        )
        test = result.likelihood_ratio_test()
        columns = {**_value_columns(result, result.values), **_test_columns(result.global_test(), test)}
        return columns, result.logbook(chunk.time, test)


@dataclass(frozen=True)
class ModelReconciler:
    """Reconciles measured values by the predictions and the balances of a fitted model.

    Args:
        plant: The accuracies of sensors, as far as the job gives them; the model has learned the others.
        model: A fitted model.
        level: Probability of intervals, and confidence level of tests.
    """

    plant: Plant
    model: ConstrainedBNNRegressor
    level: float

    @classmethod
    def load(cls, plant: Plant, path: Path, level: float) -> ModelReconciler:
        """Load the model of a file.

        Args:
            plant: Sensors, balances and tolerances of the job.
            path: The model file.
            level: Probability of intervals, and confidence level of tests.
        Raises: JobError, if a sensor is not one of the model's outputs, or a balance or tolerance is not the model's.
        """
        from equipoise.app.commands.open_model import open_model
        from equipoise.app.job import JobError
        from equipoise.artifact import describe
        from equipoise.balances import did_you_mean

        model = open_model(path)
        for name in plant.accuracies:
            if name not in model.output_names_:
                rule = f"{plant.file}: [sensors] must name outputs of '{path.name}', whose inputs are exact"
                raise JobError(f"{rule}, but got {name!r}. {did_you_mean(name, model.output_names_)}")
        description = describe(path)
        _check_balances(plant, description, path.name)
        _check_tolerances(plant, description, path.name)
        return cls(plant, model, level)

    def measured_table(self, path: Path, time: str | None) -> MeasuredTable:
        """Return the table of a file, with the model's outputs, and its inputs as exact columns.

        Args:
            path: The table's file.
            time: Name of the column with times; None for none.
        """
        from equipoise.app.report import input_names

        outputs, inputs = tuple(self.model.output_names_), tuple(input_names(self.model))
        return MeasuredTable(self.plant, path, outputs, inputs, time, learned=True)

    def reconcile(self, chunk: MeasuredChunk) -> tuple[dict[str, Any], Logbook]:
        """Reconcile a chunk: the columns that are added to it, and the logbook of its rows."""
        import numpy as np

        std = np.broadcast_to(chunk.std, chunk.values.shape)
        X, values = frame_or_array(self.model, chunk.exact), frame_or_array(self.model, chunk.values)
        result = self.model.reconcile(X, values, std, level=self.level)
        test = result.likelihood_ratio_test()
        columns = {**_value_columns(result, result.mean), **_test_columns(result.global_test(), test)}
        return {**columns, DRAWS_COLUMN: result.effective_draws}, result.logbook(chunk.time, test)


# --- Jobs and models that disagree ------------------------------------------------------------------------------------


def _check_balances(plant: Plant, description: Description, file: str) -> None:
    """Raise JobError if the job has balances, and they are not those of the model, which cannot be changed."""
    from equipoise.app.job import JobError

    columns = (*description.columns.inputs, *description.columns.known, *description.columns.outputs)
    model_balances = {balance.name: balance.text for balance in description.balances}
    for name in dict.fromkeys((*plant.balances, *model_balances)) if plant.balances else ():
        in_job, in_model = plant.balances.get(name), model_balances.get(name)
        if in_job is None or in_model is None or not _same_balance(in_job, plant.columns, in_model, columns):
            got = (
                f"{in_job!r} for {name!r}, which is {in_model!r} there"
                if in_job and in_model
                else f"{name!r} in one of them only"
            )
            rule = f"{plant.file}: [balances] must be left out, or be those of '{file}'"
            raise JobError(f"{rule}, but got {got}. Take the job that the model was fitted with.")


def _same_balance(first: str, first_columns: tuple[str, ...], second: str, second_columns: tuple[str, ...]) -> bool:
    """Return whether two texts are the same equation, up to a factor."""
    one, other = _scaled_equation(first, first_columns), _scaled_equation(second, second_columns)
    return one.keys() == other.keys() and all(abs(one[name] - other[name]) <= 1e-9 * abs(one[name]) for name in one)


def _scaled_equation(text: str, columns: tuple[str, ...]) -> dict[str, float]:
    """Return the coefficients of an equation by column, its constant under "", divided by the coefficient of the column
    that is first in the alphabet.
    """
    from equipoise.balances import parse_equation

    equation = parse_equation(text, columns)
    terms = {name: value for name, value in equation.coefficients.items() if value}
    factor = terms[min(terms)] if terms else 1.0
    return {name: value / factor for name, value in {**terms, "": equation.constant}.items()}


def _check_tolerances(plant: Plant, description: Description, file: str) -> None:
    """Raise JobError if the job has tolerances other than those that the model was fitted with."""
    from equipoise.app.job import Job, JobError

    model_tolerances = Job.parse(description.job).tolerances if description.job else {}
    for name, value in plant.tolerances.items():
        if name not in model_tolerances or model_tolerances[name] != value:
            rule = f"{plant.file}: [tolerances] must be left out with a model, whose own count, or be those of '{file}'"
            raise JobError(f"{rule}, but got another one for {name!r}. Leave it out, or fit the model with it.")


# --- Columns that are added -------------------------------------------------------------------------------------------


def added_columns(variables: tuple[str, ...]) -> list[str]:
    """Return the names of the columns that may be added to a table.

    Example:
        >>> added_columns(("feed",))[:4]
        ['feed reconciled', 'feed half-width', 'feed adjustment', 'global statistic']
    """
    of_variables = [f"{name} {quantity}" for name in variables for quantity in VARIABLE_COLUMNS]
    return [*of_variables, *TEST_COLUMNS, *SUSPECT_COLUMNS, DRAWS_COLUMN]


def _value_columns(result: Any, values: Any) -> dict[str, Any]:
    """Return reconciled value, half-width of its interval and adjustment of each variable, `(rows,)` each.

    Args:
        result: What `reconcile` returned.
        values: Reconciled values, `(rows, n_y)` or `(n_y,)`.
    """
    import numpy as np

    shape, arrays = (-1, len(result.variables)), (values, result.half_widths.after, result.adjustments)
    columns = {
        quantity: np.asarray(array).reshape(shape) for quantity, array in zip(VARIABLE_COLUMNS, arrays, strict=True)
    }
    return {
        f"{name} {quantity}": columns[quantity][:, j]
        for j, name in enumerate(result.variables)
        for quantity in VARIABLE_COLUMNS
    }


def _test_columns(global_test: GlobalTest, test: GrossErrorTest) -> dict[str, Any]:
    """Return the columns of the global test, and of the suspect and its gross error, `(rows,)` each."""
    import numpy as np
    import pandas as pd

    from equipoise.reconciliation import half_width

    rows = np.arange(len(test.z))
    names = np.array([*(candidate.name for candidate in test.candidates), None], dtype=object)
    kinds = np.array([*(candidate.kind for candidate in test.candidates), None], dtype=object)
    suspected = test.worst >= 0  # worst is -1 in rows without a suspect, which finds the None at the end
    std = np.where(suspected, test.std[rows, test.worst], np.nan)
    suspect = (
        pd.array(names[test.worst], dtype="string"),
        pd.array(kinds[test.worst], dtype="string"),
        test.z[rows, test.worst] * std,
        half_width(test.level) * std,
        pd.array(_alternatives(test), dtype="string"),
    )
    return dict(zip((*TEST_COLUMNS, *SUSPECT_COLUMNS), (*_global_test_columns(global_test), *suspect), strict=True))


def _global_test_columns(test: GlobalTest) -> tuple[Any, Any, Any]:
    """Return statistic, threshold and alarm of each row; empty where there is nothing to test."""
    import numpy as np
    import pandas as pd

    untested = np.isnan(test.threshold)
    alarm = pd.array(np.where(untested, None, test.alarm), dtype="boolean")
    return np.where(untested, np.nan, test.statistic), test.threshold, alarm


def _alternatives(test: GrossErrorTest) -> Any:
    """Return for each row the names of others that explain it as well as its suspect, `(rows,)`; None without any."""
    import numpy as np

    from equipoise.reconciliation import equally_suspect

    others = equally_suspect(test)
    others[np.arange(len(others)), test.worst] = False
    names, rows = np.full(len(others), None, dtype=object), np.flatnonzero(others.any(axis=1))
    sets, set_of_row = np.unique(others[rows], axis=0, return_inverse=True)
    for k, members in enumerate(sets):
        names[rows[set_of_row == k]] = ", ".join(test.candidates[j].name for j in np.flatnonzero(members))
    return names
