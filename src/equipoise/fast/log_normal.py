"""Draws of log-normal variances (tolerances and sensors) for the rows of a batch, with gradients (K2).

The twin of `equipoise.gaussian.LogNormalVariance.draw_rows` and of its derivatives. A posterior is a tuple of arrays of
shape `(k,)`: `loc`, `log_std`, floor, mask of the learned variances, fixed variances, prior mean, prior standard
deviation.
"""

from equipoise.fast.compilation import compiled
from equipoise.fast.elementary import exp


@compiled
def draw_log_normal(posterior, noise, derivative, value):
    """Draw variances `exp(loc + std ξ) + floor` for every row; fixed variances are copied.

    Args:
        posterior: As in the module's description.
        noise: Standard normal numbers ξ, shape `(n, k)`.
        derivative: Filled with the derivatives with respect to `loc`, `exp(loc + std ξ)`, shape `(n, k)`.
        value: Filled with the draws, shape `(n, k)`.
    """
    loc, log_std, floor, learned, fixed, _, _ = posterior
    for k in range(loc.size):
        std = exp(log_std[k])
        for i in range(noise.shape[0]):
            derivative[i, k] = loc[k] + std * noise[i, k]
    flat = derivative.reshape(-1)
    for e in range(flat.size):
        flat[e] = exp(flat[e])
    for i in range(noise.shape[0]):
        for k in range(loc.size):
            value[i, k] = derivative[i, k] + floor[k] if learned[k] else fixed[k]


@compiled
def pull_log_normal(grad_value, derivative, noise, posterior, weight, grad_posterior):
    """Compute the gradients with respect to `loc` and `log_std` from the gradient with respect to the draws.

    Args:
        grad_value: Gradient with respect to the draws, shape `(n, k)`.
        derivative, noise: As in `draw_log_normal`, shape `(n, k)`.
        posterior: As in the module's description.
        weight: Weight of the KL divergence in the loss, whose gradient is included (K2).
        grad_posterior: Two arrays of shape `(k,)`, filled.
    """
    loc, log_std, _, learned, _, prior_mean, prior_std = posterior
    grad_loc, grad_log_std = grad_posterior
    grad_loc[:], grad_log_std[:] = 0.0, 0.0
    for i in range(grad_value.shape[0]):
        for k in range(loc.size):
            grad_rho = grad_value[i, k] * derivative[i, k]
            grad_loc[k] += grad_rho
            grad_log_std[k] += grad_rho * noise[i, k]
    for k in range(loc.size):
        std, z = exp(log_std[k]), (loc[k] - prior_mean[k]) / prior_std[k]
        ratio = std / prior_std[k]
        grad_loc[k] = grad_loc[k] + weight * z / prior_std[k] if learned[k] else 0.0
        grad_log_std[k] = grad_log_std[k] * std + weight * (ratio * ratio - 1.0) if learned[k] else 0.0
