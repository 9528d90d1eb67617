"""Training: from a model and rows to fitted parameters and the history of all epochs.

In: a `ConstrainedBNN`, standardized rows and a `TrainingPlan`. Out: the fitted model and its `History`. Also here: the
gradient of a training step, the optimizer, checkpoints, training in several processes, and `run_many` for many fits.

Calls: `network`, `data`, `gaussian`, `balances`, `fast`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
