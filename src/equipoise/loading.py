"""Opening model files of all estimators of the library: `equipoise.load`.

In: the path of a model file. Out: the fitted estimator that was saved in it.

Calls: `rivals`, `artifact`, `estimator`.
"""

import os
from collections.abc import Sequence
from typing import Any

from equipoise.artifact import describe, load as load_file
from equipoise.errors import check_device
from equipoise.estimator import ConstrainedBNNRegressor


def load(
    path: str | os.PathLike, device: Any = None, implementations: type | Sequence[type] = ()
) -> ConstrainedBNNRegressor:
    """Read a fitted model from a file; with the same software on the same machine it predicts the same bits.

    Args:
        path: A file written by `save`.
        device: Device on which torch computes, for instance "cuda".
        implementations: One or more classes of your own that the model was fitted with, such as a `Likelihood`, a
            `WeightPosterior` or an `Equality`, or the class of the estimator. A file names its implementations; it
            never imports one.
    Returns: The fitted estimator, without the parameters that `save` does not keep.
    Raises: ArtifactError, if the file is missing, damaged, or of a newer format.
    """
    check_device(device)
    if describe(path).estimator.name == ConstrainedBNNRegressor.file_name:
        return load_file(path, device, implementations)
    from equipoise.rivals import IMPLEMENTATIONS

    own = [implementations] if isinstance(implementations, type) else [*implementations]
    return load_file(path, device, [*own, *IMPLEMENTATIONS])
