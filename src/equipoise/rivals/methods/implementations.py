"""What a model file of a `MethodRegressor` may name beside the parts of the core."""

from equipoise.rivals.methods.dropout import Dropout
from equipoise.rivals.methods.gains import Completion, Projection
from equipoise.rivals.methods.laplace import LastLayerLaplace
from equipoise.rivals.methods.regressor import MethodRegressor

IMPLEMENTATIONS: tuple[type, ...] = (MethodRegressor, Dropout, LastLayerLaplace, Projection, Completion)
