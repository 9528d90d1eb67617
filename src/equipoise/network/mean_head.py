"""The mean head near one weight vector: its derivatives with respect to the weights, forwards and backwards.

With `J(x) = ∂μ(x; θ)/∂θ` at `θ*`, the network's mean is close to `μ(x; θ*) + J(x) δ` for weights `θ* + δ`. `J` has
`n_y` rows and a column for each weight, so that it is only ever multiplied: by changes of the weights (`tangents`), or
from the left by cotangents of the means (`pull_back`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.network.layers import ACTIVATIONS, SLOPES, layer_views
from equipoise.network.posterior import n_weights


@dataclass(frozen=True)
class MeanHead:
    """The mean head at some rows, linear in the weights about `θ*`; made by `at`.

    Args:
        mean: `μ(x; θ*)`, shape `(n, n_y)`.
        weights: Weight matrix of each layer; of the last, the columns of the means alone.
        inputs: Inputs of each layer at `θ*`, shape `(n, fan_in)`.
        slopes: Derivatives of the activations of each hidden layer, shape `(n, fan_out)`.
        sizes: Widths of inputs, hidden layers and last layer.

    Example:
        >>> point, x = torch.tensor([2.0, 0.0, 1.0, 0.0], dtype=torch.float64), torch.tensor([[3.0]])
        >>> head = MeanHead.at(point, x.double(), sizes=(1, 2), n_outputs=1, activation="tanh")
        >>> head.mean, head.tangents(torch.ones(1, 4, dtype=torch.float64))
        (tensor([[7.]], dtype=torch.float64), tensor([[[4.]]], dtype=torch.float64))
    """

    mean: Float[Tensor, "n n_y"]
    weights: list[Tensor]
    inputs: list[Tensor]
    slopes: list[Tensor]
    sizes: tuple[int, ...]

    @classmethod
    def at(
        cls,
        point: Float[Tensor, " P"],
        x: Float[Tensor, "n n_x"],
        sizes: Sequence[int],
        n_outputs: int,
        activation: str,
    ) -> "MeanHead":
        """Evaluate the mean head, and keep what its derivatives need.

        Args:
            point: `θ*`, weights, then biases, layer after layer.
            x: Standardized inputs, of the dtype of `point`.
            sizes: Widths of inputs, hidden layers and last layer.
            n_outputs: Number of means, the first units of the last layer.
            activation: Name of the activation.
        """
        layers = layer_views(point, sizes)
        layers[-1] = (layers[-1][0][:, :n_outputs], layers[-1][1][:n_outputs])
        inputs, slopes = [x], []
        for W, bias in layers[:-1]:
            a = torch.addmm(bias, inputs[-1], W)
            inputs.append(ACTIVATIONS[activation](a))
            slopes.append(SLOPES[activation](a))
        W, bias = layers[-1]
        return cls(torch.addmm(bias, inputs[-1], W), [W for W, _ in layers], inputs, slopes, tuple(sizes))

    def signals(self) -> list[Float[Tensor, "n n_y fan_out"]]:
        """Return the derivative of each mean by the pre-activations of each layer, row by row."""
        n, n_y = self.mean.shape
        u = torch.eye(n_y, dtype=self.mean.dtype, device=self.mean.device).expand(n, n_y, n_y)
        result = [u]
        for i in reversed(range(1, len(self.weights))):
            u = (u @ self.weights[i].mT) * self.slopes[i - 1].unsqueeze(1)
            result.insert(0, u)
        return result

    def tangents(self, changes: Float[Tensor, "k P"]) -> Float[Tensor, "k n n_y"]:
        """Multiply changes of the weights by the derivative: `J(x) δ`.

        Args:
            changes: Changes `δ` of all weights, one vector for each of k results; those of other heads have no effect.
        """
        layers, n_outputs = layer_views(changes, self.sizes), self.mean.shape[-1]
        tangent = None
        for i, (h, W) in enumerate(zip(self.inputs, self.weights, strict=True)):
            dW, dbias = layers[i]
            if i == len(self.weights) - 1:
                dW, dbias = dW[..., :n_outputs], dbias[..., :n_outputs]
            change = torch.baddbmm(dbias.unsqueeze(-2), h.expand(len(changes), *h.shape), dW)
            if tangent is not None:
                change = change + tangent @ W
            tangent = change if i == len(self.weights) - 1 else change * self.slopes[i]
        return tangent  # type: ignore[return-value]

    def pull_back(self, cotangents: Float[Tensor, "k n n_y"]) -> Float[Tensor, "k P"]:
        """Multiply cotangents of the means by the transposed derivative, summed over rows: `Σ_i J(x_i)ᵀ u_i`.

        Args:
            cotangents: `u`, a number for each result, row and output.
        """
        result = cotangents.new_zeros(len(cotangents), n_weights(self.sizes))
        layers, n_outputs, u = layer_views(result, self.sizes), self.mean.shape[-1], cotangents
        for i in reversed(range(len(self.weights))):
            dW, dbias = layers[i]
            if i == len(self.weights) - 1:
                dW, dbias = dW[..., :n_outputs], dbias[..., :n_outputs]
            h = self.inputs[i]
            dW.copy_(h.mT.expand(len(u), *h.mT.shape) @ u)
            dbias.copy_(u.sum(-2))
            if i > 0:
                u = (u @ self.weights[i].mT) * self.slopes[i - 1]
        return result
