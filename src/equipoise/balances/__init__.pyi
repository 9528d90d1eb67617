from .dependence import CANCELLED as CANCELLED, RANK_TOLERANCE as RANK_TOLERANCE, equilibrate as equilibrate
from .equality import Equality as Equality, balance_scale as balance_scale, linearised as linearised
from .equations import (
    EquationError as EquationError,
    format_equation as format_equation,
    parse_equation as parse_equation,
)
from .linear import (
    EQUALITIES as EQUALITIES,
    ConstraintError as ConstraintError,
    LinearConstraint as LinearConstraint,
    check_equality_kind as check_equality_kind,
    connected_rows as connected_rows,
)
from .names import (
    column_symbol as column_symbol,
    column_unit as column_unit,
    did_you_mean as did_you_mean,
    quoted_list as quoted_list,
)
from .verdicts import Residual as Residual, ToleranceEvidence as ToleranceEvidence, verdict as verdict
