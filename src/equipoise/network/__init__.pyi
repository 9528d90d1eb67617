from .heads import (
    LOG_FACTOR_BOUND as LOG_FACTOR_BOUND,
    LOG_VAR_BOUND as LOG_VAR_BOUND,
    NetworkGaussian as NetworkGaussian,
    bounded as bounded,
)
from .imposition import Imposition as Imposition
from .layers import ACTIVATIONS as ACTIVATIONS, is_compiled as is_compiled, layer_views as layer_views
from .likelihood import (
    LIKELIHOODS as LIKELIHOODS,
    Likelihood as Likelihood,
    as_likelihood as as_likelihood,
    joint as joint,
    marginal as marginal,
)
from .linearised import LinearisedLaplace as LinearisedLaplace, spread_over_members as spread_over_members
from .mean_head import MeanHead as MeanHead
from .members import Members as Members, member_seeds as member_seeds, starting_members as starting_members
from .mlp import (
    BayesianMLP as BayesianMLP,
)
from .model import (
    ConstrainedBNN as ConstrainedBNN,
    NegativeElbo as NegativeElbo,
    PosteriorDraws as PosteriorDraws,
    parameters_of as parameters_of,
)
from .posterior import (
    DRAW_BLOCK as DRAW_BLOCK,
    POSTERIORS as POSTERIORS,
    ForwardPass as ForwardPass,
    Laplace as Laplace,
    PosteriorFactory as PosteriorFactory,
    WeightDraws as WeightDraws,
    WeightPosterior as WeightPosterior,
    as_posterior as as_posterior,
    n_weights as n_weights,
    posterior_name as posterior_name,
)
from .seeds import derived_seed as derived_seed
from .twins import twin_of as twin_of
