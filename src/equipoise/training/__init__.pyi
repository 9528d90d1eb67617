from .checkpoint import TrainingError as TrainingError
from .distributed import LostProcessError as LostProcessError, current as current, joined as joined
from .loop import History as History, shuffled as shuffled, train as train
from .optimizer import Adam as Adam
from .plan import PHASES as PHASES, TrainingPlan as TrainingPlan, cosine as cosine, one_cycle as one_cycle
from .starting_variances import split_residuals as split_residuals
from .task_pool import FleetError as FleetError, Progress as Progress, Task as Task, run_many as run_many
