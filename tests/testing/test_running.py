"""Implementations from outside are classes of their own, and whatever a check raises is told by its name."""

import numpy as np
import pytest
from outside import LaplaceNoise, LowRank

import equipoise as eq
from equipoise.network.likelihood import Marginal, marginal
from equipoise.testing import check_likelihood


def test_names_of_the_library_cannot_be_taken():
    class Taken(LaplaceNoise):
        name = "marginal"

    class AlsoTaken(LowRank):
        name = "mean-field"

    X, y = np.zeros((5, 1)), np.zeros((5, 1))
    with pytest.raises(eq.EquipoiseError, match="Taken must have a name of its own, but got 'marginal', which"):
        eq.ConstrainedBNNRegressor(likelihood=Taken()).fit(X, y)
    with pytest.raises(eq.EquipoiseError, match="AlsoTaken must have a name of its own, but got 'mean-field'"):
        eq.ConstrainedBNNRegressor(posterior=AlsoTaken).fit(X, y)


def test_a_class_instead_of_an_object_and_what_fails_otherwise_are_told_in_a_sentence():
    with pytest.raises(AssertionError, match=r"must be an object, but got the class. Pass LaplaceNoise\(\)"):
        check_likelihood(LaplaceNoise)

    class NoSensors(Marginal):
        name = "no sensors"

        def log_prob(self, gaussian, y):
            return marginal(gaussian, y)

    with pytest.raises(AssertionError, match=r"NoSensors: its settings make it again: .*Error"):
        check_likelihood(NoSensors())
