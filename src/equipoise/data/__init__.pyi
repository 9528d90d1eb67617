from . import frames as frames
from .atomic_writing import write_atomically as write_atomically, write_target as write_target
from .frames import FrameBuilder as FrameBuilder, bound_of as bound_of, is_absurd as is_absurd
from .holdout import (
    MOST_STREAMED as MOST_STREAMED,
    check_measured as check_measured,
    random_split as random_split,
    split_at as split_at,
)
from .preparation import (
    TrainingData as TrainingData,
    obeyed_to_rounding as obeyed_to_rounding,
    resolve_sensor_std as resolve_sensor_std,
    tolerance_by_balance as tolerance_by_balance,
)
from .rows import AnyRows as AnyRows, Rows as Rows, mean_sensor_var as mean_sensor_var
from .scaling import Standardizer as Standardizer
from .sensors import parse_sensor_std as parse_sensor_std
from .table_checks import (
    LEAST_MEASURED as LEAST_MEASURED,
    InputRangeError as InputRangeError,
    NotFittedError as NotFittedError,
    check_inputs as check_inputs,
    check_lengths as check_lengths,
    check_outputs as check_outputs,
    check_range as check_range,
    match_constraint as match_constraint,
    output_names as output_names,
    require_fit as require_fit,
)
from .table_passes import (
    PIECE as PIECE,
    Array as Array,
    ColumnMoments as ColumnMoments,
    Comoments as Comoments,
    Table as Table,
    is_mapped as is_mapped,
    pieces as pieces,
)
