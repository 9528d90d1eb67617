"""Network: weights with their posterior, heads and likelihoods; from inputs to one Gaussian per draw of the weights.

In: standardized inputs and targets. Out: `ConstrainedBNN`, which draws weights, tolerances and sensor variances,
conditions the network's Gaussian on the balances, and estimates the evidence lower bound (E1).

Calls: `gaussian`, `data`, `fast`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
