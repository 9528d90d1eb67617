from .cases import battery as battery
from .cases.case import Case as Case, CaseError as CaseError
from .comparison.comparison import Comparison as Comparison, as_case as as_case, compare as compare
from .comparison.summary import ScoreCell as ScoreCell
from .methods.catalogue import (
    IMPOSITIONS as IMPOSITIONS,
    INFERENCES as INFERENCES,
    MethodError as MethodError,
    methods_named as methods_named,
)
from .methods.regressor import MethodRegressor as MethodRegressor
