from .equalities import check_equality as check_equality, equality_checks as equality_checks
from .likelihoods import check_likelihood as check_likelihood, likelihood_checks as likelihood_checks
from .posteriors import check_posterior as check_posterior, posterior_checks as posterior_checks
from .priors import check_tolerance_prior as check_tolerance_prior, tolerance_prior_checks as tolerance_prior_checks
from .running import Check as Check
