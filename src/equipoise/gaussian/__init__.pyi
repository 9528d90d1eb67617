from .conditioning import ConditioningLayer as ConditioningLayer, condition as condition
from .curvature import hessian_root as hessian_root
from .distributions import (
    ConditionedGaussian as ConditionedGaussian,
    DiagonalGaussian as DiagonalGaussian,
    Gaussian as Gaussian,
    independent_log_prob as independent_log_prob,
    normal_log_prob as normal_log_prob,
)
from .factorised_blocks import LARGEST_INVERSE as LARGEST_INVERSE
from .operator import LOG_2PI as LOG_2PI, BalanceOperator as BalanceOperator, Factor as Factor
from .randomness import (
    BatchGenerator as BatchGenerator,
    flat_antithetic_normals as flat_antithetic_normals,
    random_keys as random_keys,
    random_scheme as random_scheme,
)
from .sampled_variances import SampledVariances as SampledVariances
from .subspace import exact_directions as exact_directions, log_volume as log_volume
from .tolerance import (
    PRIORS as PRIORS,
    GaussianOffset as GaussianOffset,
    LogNormalVariance as LogNormalVariance,
    TolerancePrior as TolerancePrior,
    check_prior_kind as check_prior_kind,
    tolerance_posterior as tolerance_posterior,
)
from .variances import (
    VariancePosterior as VariancePosterior,
    VariancePrior as VariancePrior,
    log_normal_moments as log_normal_moments,
)
