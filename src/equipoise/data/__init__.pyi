from . import frames as frames
from .files import place_of as place_of, write_atomically as write_atomically
from .frames import InKind as InKind, bound_of as bound_of, is_absurd as is_absurd
from .holdout import (
    MOST_STREAMED as MOST_STREAMED,
    check_measured as check_measured,
    given_split as given_split,
    random_split as random_split,
)
from .intake import (
    LEAST_MEASURED as LEAST_MEASURED,
    InputRangeError as InputRangeError,
    check_range as check_range,
    fitting_constraint as fitting_constraint,
    inputs_of as inputs_of,
    output_names as output_names,
    outputs_of as outputs_of,
)
from .passes import (
    PIECE as PIECE,
    Array as Array,
    Comoments as Comoments,
    Moments as Moments,
    Table as Table,
    is_mapped as is_mapped,
    pieces as pieces,
)
from .preparation import (
    Prepared as Prepared,
    obeyed_to_rounding as obeyed_to_rounding,
    sensor_std_in_use as sensor_std_in_use,
    tolerance_of_each as tolerance_of_each,
)
from .rows import AnyRows as AnyRows, Rows as Rows, mean_sensor_var as mean_sensor_var
from .scaling import Standardizer as Standardizer
from .sensors import sensor_std_of as sensor_std_of
