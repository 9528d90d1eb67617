"""Measured values made to obey their balances, and the instrument that lies found."""

from equipoise.reconciliation.alarms import Candidate, GlobalTest, GrossErrorTest
from equipoise.reconciliation.classical import BeforeAfter, Reconciliation, reconcile
from equipoise.reconciliation.elimination import Elimination, Suspect
from equipoise.reconciliation.measurements import ReconciliationError

__all__ = [
    "BeforeAfter",
    "Candidate",
    "Elimination",
    "GlobalTest",
    "GrossErrorTest",
    "Reconciliation",
    "ReconciliationError",
    "Suspect",
    "reconcile",
]
