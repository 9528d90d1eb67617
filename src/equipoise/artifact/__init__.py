"""Artifact: one safetensors file per fitted model, written and read without executing code.

In: a fitted `ConstrainedBNNRegressor`, or the path of a model file. Out: the file; the fitted regressor; or the
`Description` in the file's header, which can be read without torch.

Calls: `estimator`, `training`, `network`, `data`, `gaussian`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
