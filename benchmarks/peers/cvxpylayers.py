"""cvxpylayers: the conditioned mean as the solution of a least-squares problem, row by row in a cone solver."""

from collections.abc import Callable

import cvxpy as cp
from cvxpylayers.torch import CvxpyLayer
from torch import Tensor


def layers(B: Tensor) -> dict[str, Callable[..., tuple[Tensor]]]:
    """`argmin_y Σ_j (y_j − μ_j)² / v_j + Σ_k (t_k − (B y)_k)² / r_k`, differentiable in all four."""
    m, n_y = B.shape
    y, root, centre = cp.Variable(n_y), cp.Parameter(n_y), cp.Parameter(n_y)
    strictness, goal = cp.Parameter(m), cp.Parameter(m)
    misfit = cp.sum_squares(cp.multiply(root, y) - centre)
    residual = cp.sum_squares(cp.multiply(strictness, B.numpy() @ y) - goal)
    solve = CvxpyLayer(cp.Problem(cp.Minimize(misfit + residual)), [root, centre, strictness, goal], [y])

    def rule(mean, var, B, target, tol_var):
        root, strictness = var.rsqrt(), tol_var.rsqrt()
        return solve(root, root * mean, strictness, strictness * target)

    return {"cvxpylayers": rule}
