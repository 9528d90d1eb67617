from . import metrics as metrics, trust as trust
from .ledger import Ledger as Ledger
from .metrics import Magnitudes as Magnitudes, coverage_of_pit as coverage_of_pit, pit as pit
from .mixture import Components as Components
from .predictive import ROW_BLOCK as ROW_BLOCK, Predictive as Predictive
