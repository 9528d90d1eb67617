"""Measured values made to obey their balances, and the instrument that lies found."""

from equipoise.reconciliation.alarms import Candidate, GlobalTest, GrossErrorTest
from equipoise.reconciliation.classical import BeforeAfter, Reconciliation, reconcile
from equipoise.reconciliation.elimination import Elimination, Suspect
from equipoise.reconciliation.judgement import verdicts
from equipoise.reconciliation.logbook import Logbook
from equipoise.reconciliation.measurements import ReconciliationError
from equipoise.reconciliation.tally import Incident

__all__ = [
    "BeforeAfter",
    "Candidate",
    "Elimination",
    "GlobalTest",
    "GrossErrorTest",
    "Incident",
    "Logbook",
    "Reconciliation",
    "ReconciliationError",
    "Suspect",
    "reconcile",
    "verdicts",
]
