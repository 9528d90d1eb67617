"""Do the data obey the balances? Which sign is wrong? Which balances hide in the data?"""

from equipoise.diagnosis.balances import BalanceFinding, OutlyingRow
from equipoise.diagnosis.columns import ColumnFinding
from equipoise.diagnosis.diagnosis import Diagnosis, diagnose
from equipoise.diagnosis.discovery import DiscoveryError, SearchWarning, propose
from equipoise.diagnosis.proposals import Proposal
from equipoise.diagnosis.repairs import Repair

__all__ = [
    "BalanceFinding",
    "ColumnFinding",
    "Diagnosis",
    "DiscoveryError",
    "OutlyingRow",
    "Proposal",
    "Repair",
    "SearchWarning",
    "diagnose",
    "propose",
]
