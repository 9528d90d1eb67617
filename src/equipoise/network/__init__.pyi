from .likelihood import joint as joint, marginal as marginal
from .mlp import (
    ACTIVATIONS as ACTIVATIONS,
    LOG_FACTOR_BOUND as LOG_FACTOR_BOUND,
    LOG_VAR_BOUND as LOG_VAR_BOUND,
    BayesianMLP as BayesianMLP,
    NetworkGaussian as NetworkGaussian,
)
from .model import (
    ConstrainedBNN as ConstrainedBNN,
    PosteriorDraws as PosteriorDraws,
    derived_seed as derived_seed,
    parameters_of as parameters_of,
)
from .posterior import DRAW_BLOCK as DRAW_BLOCK
from .propagation import is_compiled as is_compiled, layers as layers
