"""Prediction: the mixture over posterior draws, its moments, quantiles, samples, densities and scores.

In: a fitted model, its `Standardizer` and inputs. Out: a `Predictive` with mean, standard deviation, quantiles, joint
samples, densities and the `Ledger` of its variance; its scores; and the trust in each balance and sensor after a fit.

Calls: `network`, `data`, `gaussian`, `fast`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
