"""Prediction: the mixture over posterior draws and everything that can be asked of it.

In: a fitted model, its `Standardizer` and inputs. Out: a `Predictive` with mean, standard deviation, quantiles, joint
samples, densities and the `Ledger` of its variance; scores of it; and what a fit taught about each balance and sensor.

Calls: `network`, `data`, `gaussian`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
