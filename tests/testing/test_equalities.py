"""Checks pass equalities that keep to the contract, also from outside the package, and name what does not."""

import numpy as np
import pandas as pd
import pytest
from outside import ComponentBalance, Power, SquaredTarget

import equipoise as eq
from equipoise.testing import check_equality, equality_checks

RNG = np.random.default_rng(0)
N = 40
COLUMN = np.column_stack(
    [RNG.uniform(5, 10, N), RNG.uniform(0.3, 0.6, N), RNG.uniform(0.7, 0.95, N), RNG.uniform(0.05, 0.2, N)]
)
ONE = RNG.uniform(1, 2, (N, 1))
SPLIT = eq.LinearConstraint.from_equations(
    {"mass": "feed + 3 = top + bottom", "heat": "duty = 2*top + purge"},
    inputs=["feed"],
    known=["purge"],
    outputs=["top", "bottom", "duty"],
)
EQUALITIES = {
    "linear": (SPLIT, np.column_stack([ONE, 0.3 * ONE**2])),
    "linear without inputs": (eq.LinearConstraint([[1.0, -1.0, 0.0]], inputs=["x"], A=[[0.0]]), ONE),
    "outside, coupled": (ComponentBalance(), COLUMN),
    "outside, one balance": (ComponentBalance(mass=False), COLUMN),
    "outside, targets alone": (SquaredTarget([1.0, 2.0, -0.5]), ONE),
}
CHECKS = [
    pytest.param(check, id=f"{who}: {name}")
    for who, (equality, X) in EQUALITIES.items()
    for name, check in equality_checks(equality, X)
]


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("check", CHECKS)
def test_an_equality_keeps_to_the_contract(check):
    check()


def test_a_nonlinear_equality_keeps_to_the_contract_at_rows_that_obey():
    V, I = 1.0 + RNG.random((2, N))  # noqa: E741
    check_equality(Power(), ONE, np.column_stack([V * I, V, I]))
    names = [name for name, _ in equality_checks(Power(), ONE)]
    assert "model is fitted and saved" not in names
    with pytest.raises(
        AssertionError, match="Power: rows are independent: Y must be passed for equalities that are not"
    ):
        check_equality(Power(), ONE)


class WrongSign(Power):
    def linearise(self, X, Y=None):
        B, target = super().linearise(X, Y)
        return B * [1.0, 1.0, -1.0], target


class NoName(ComponentBalance):
    name = ""


class BalancesLast(ComponentBalance):
    def linearise(self, X, Y=None):
        B, target = super().linearise(X, Y)
        return B.swapaxes(1, 2), target


class Shuffled(ComponentBalance):
    def linearise(self, X, Y=None):
        B, target = super().linearise(X, Y)
        return B * X[:, :1, None] / X[:, 0].mean(), target


class NarrowPattern(ComponentBalance):
    @property
    def pattern(self):
        return np.array([[True, True, False], [True, True, False]])


class OwnResidual(ComponentBalance):
    def residual(self, X, Y):
        return super().residual(X, Y) + 1e-3


class UsesOutputs(ComponentBalance):
    def linearise(self, X, Y=None):
        B, target = super().linearise(X)
        return B, target if Y is None else target + Y[:, :1]


class NeedsOutputs(ComponentBalance):
    def linearise(self, X, Y=None):
        B, target = super().linearise(X)
        return B, target + 0.0 * Y[:, :1]


class ArrayInSettings(ComponentBalance):
    def settings(self):
        return {"mass": np.array(self.mass)}


class Forgets(ComponentBalance):
    def settings(self):
        return {}


class ZeroForMissing(ComponentBalance):
    def residual(self, X, Y):
        return super().residual(X, np.nan_to_num(Y))


class SmallTerms(ComponentBalance):
    def magnitude(self, X, Y):
        return 1e-3 * super().magnitude(X, Y)


class VarForStd(ComponentBalance):
    def scale(self, output_std, X=None):
        return super().scale(output_std, X) ** 2


class NotFinite(ComponentBalance):
    def linearise(self, X, Y=None):
        B, target = super().linearise(X)
        return B, np.log(target - target.min())


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(
    ("equality", "complaint"),
    [
        (NoName(), "its names are set: .*NoName must have a name of its own, but got ''"),
        (BalancesLast(), r"shapes fit: .*must return B of shape \(40, 2, 3\).* but got \(40, 3, 2\)"),
        (NotFinite(), "shapes fit: B and targets of finite X must be finite"),
        (Shuffled(), "rows are independent: B of row 0 alone must be that of the row among others"),
        (NeedsOutputs(), r"shapes fit: linearise\(X\) must work without Y .* but raised TypeError"),
        (ArrayInSettings(), r"its settings make it again: settings\(\) must hold what JSON can hold, but got {'mass'"),
        (NarrowPattern(), "nothing lies outside the pattern: the coefficient of 'loss' in 'mass' is not 0"),
        (OwnResidual(), "residual is that of linearise: residual must be B y − t"),
        (UsesOutputs(), "residual is that of linearise: "),
        (ZeroForMissing(), "missing outputs are told by NaN: without 'top'"),
        (SmallTerms(), "its magnitude bounds the residual: "),
        (VarForStd(), r"its scale is that of the coefficients: expected .* \(Z2\)"),
        (Forgets(mass=False), "its settings make it again: .* must have the same names"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, eq.Equality) else "",
)
def test_an_equality_that_does_not_is_told_by_the_name_of_the_check(equality, complaint):
    with pytest.raises(AssertionError, match=f"{type(equality).__name__}: {complaint}"):
        check_equality(equality, COLUMN)


def test_wrong_derivatives_are_told_by_the_name_of_the_output():
    V, I = 1.0 + RNG.random((2, N))  # noqa: E741
    with pytest.raises(AssertionError, match="WrongSign: residual is that of linearise: Y must obey"):
        check_equality(WrongSign(), ONE, np.column_stack([V * I, V, I]))

    class WrongDerivative(Power):
        def linearise(self, X, Y=None):
            B, target = super().linearise(X, Y)
            wrong = B * [1.0, 2.0, 1.0]  # with the residual that belongs to it at Y
            return wrong, target + ((wrong - B) @ Y[..., None])[..., 0]

    with pytest.raises(AssertionError, match="are derivatives of the residual: derivative with respect to 'V'"):
        check_equality(WrongDerivative(), ONE, np.column_stack([V * I, V, I]))


def test_a_class_instead_of_an_object_and_too_few_rows_are_told_in_a_sentence():
    with pytest.raises(AssertionError, match=r"must be an object, but got the class. Pass ComponentBalance\(\)"):
        check_equality(ComponentBalance, COLUMN)
    with pytest.raises(AssertionError, match=r"shapes fit: X must hold at least 20 rows, got shape \(5, 4\)"):
        check_equality(ComponentBalance(), COLUMN[:5])


def test_a_frame_whose_columns_are_in_another_order_is_refused():
    balance = ComponentBalance()
    frame = pd.DataFrame(COLUMN, columns=balance.columns)
    np.testing.assert_array_equal(balance.scale([1.0, 1.0, 1.0], frame), balance.scale([1.0, 1.0, 1.0], COLUMN))
    with pytest.raises(AssertionError, match=r"X must have its columns in the order \('feed', .* got \('x_bottom'"):
        check_equality(balance, frame[frame.columns[::-1]])
