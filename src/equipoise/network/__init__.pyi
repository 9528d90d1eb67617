from .layers import ACTIVATIONS as ACTIVATIONS, is_compiled as is_compiled, layer_views as layer_views
from .likelihood import (
    LIKELIHOODS as LIKELIHOODS,
    Likelihood as Likelihood,
    as_likelihood as as_likelihood,
    joint as joint,
    marginal as marginal,
)
from .mlp import (
    LOG_FACTOR_BOUND as LOG_FACTOR_BOUND,
    LOG_VAR_BOUND as LOG_VAR_BOUND,
    BayesianMLP as BayesianMLP,
    NetworkGaussian as NetworkGaussian,
)
from .model import (
    ConstrainedBNN as ConstrainedBNN,
    NegativeElbo as NegativeElbo,
    PosteriorDraws as PosteriorDraws,
    derived_seed as derived_seed,
    parameters_of as parameters_of,
)
from .posterior import (
    DRAW_BLOCK as DRAW_BLOCK,
    POSTERIORS as POSTERIORS,
    PosteriorFactory as PosteriorFactory,
    WeightPosterior as WeightPosterior,
    as_posterior as as_posterior,
    posterior_name as posterior_name,
)
from .twins import twin_of as twin_of
