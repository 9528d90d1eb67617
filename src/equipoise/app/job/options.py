"""Options of a job file besides columns and balances: of the model, of sensors and of tolerances."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

Whole = Annotated[int, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class ModelOptions(BaseModel):
    """The section `[model]`: every option of the estimator and of its training plan, with the defaults they have.

    Only the seed is different: a job gives the same model whenever it is run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    likelihood: Literal["joint", "marginal"] = Field(
        default="joint", description='"joint" tells sensor noise from the truth, "marginal" is the paper\'s'
    )
    posterior: Literal["mean-field", "laplace"] = Field(
        default="mean-field", description='of the weights; "laplace" is meant for small tables'
    )
    start: Literal["residuals", "prior"] = Field(
        default="residuals", description='of variances; "prior" is the paper\'s training: the ELBO alone, temperature 1'
    )
    offset: Flag = Field(default=False, description="also learn a constant offset of each balance")
    hidden: tuple[Count, ...] = Field(default=(64, 64), description="widths of the hidden layers")
    activation: Literal["silu", "tanh", "relu", "gelu"] = Field(default="silu", description='or "tanh", "relu", "gelu"')
    prior_std: Annotated[Real, Field(gt=0)] = Field(default=1.0, description="prior standard deviation of every weight")
    n_draws: Count = Field(default=256, description="posterior draws that predictions average over")
    validation_fraction: Annotated[Real, Field(ge=0, lt=1)] = Field(
        default=0.1, description="share of rows held out to decide when to stop"
    )
    seed: Annotated[Whole, Field(ge=0, lt=2**32)] = Field(default=0, description="the same seed gives the same model")
    device: Annotated[str, Field(strict=True)] | None = Field(
        default=None, examples=["cuda"], description="where to compute; left out: on the processor"
    )
    max_epochs: Count = Field(
        default=600,
        description="the most epochs, of one pass over the rows each, or up to four if few",
    )
    mean_epochs: Annotated[Whole, Field(ge=0)] = Field(
        default=300, description="epochs of the first phase, which fits means alone; at most half of all"
    )
    noise_epochs: Annotated[Whole, Field(ge=0)] = Field(
        default=60, description="epochs of the last phase, which fits spreads alone; at most a tenth of all"
    )
    batch_size: Count | None = Field(
        default=None, examples=[128], description="rows per step; left out: from the number of rows"
    )
    mean_learning_rate: Annotated[Real, Field(ge=0)] = Field(default=2e-2, description="peak rate of the first phase")
    learning_rate: Annotated[Real, Field(ge=0)] = Field(default=6e-3, description="peak rate of the second phase")
    tolerance_rate: Annotated[Real, Field(ge=0)] = Field(
        default=10.0, description="tolerances and sensors learn this many times faster than weights"
    )
    std_rate: Annotated[Real, Field(ge=0)] = Field(
        default=3.0, description="spreads of the weights learn this many times faster than their means"
    )
    kl_warmup: Annotated[Real, Field(ge=0, le=1)] = Field(
        default=0.2, description="share of the second phase over which the prior gains its weight"
    )
    temperature: Annotated[Real, Field(gt=0)] = Field(
        default=0.5, description="what the weights' divergence from their prior counts for; 1 is Bayes' rule"
    )
    init_std: Annotated[Real, Field(gt=0)] = Field(
        default=math.exp(-7), description="spread of the weights when the second phase starts"
    )
    patience: Count = Field(default=100, description="epochs without improvement on held-out rows before stopping")
    max_grad_norm: Annotated[Real, Field(gt=0)] = Field(default=100.0, description="gradients are clipped to this norm")
    validation_draws: Count | None = Field(
        default=None, examples=[8], description="draws per held-out row; left out: from the number of rows"
    )


class LearnedTolerance(BaseModel):
    """A tolerance that is learned, with its prior.

    Attributes:
        median: Prior median of the standard deviation of the balance's residual, in the balance's own unit, or relative
            to its scale (Z2).
        factor: The prior's standard deviation as a factor: the prior is log-normal, and one standard deviation reaches
            from `median / factor` to `median * factor`.
        relative: Whether `median` is relative to the balance's scale.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    median: Annotated[Real, Field(gt=0)]
    factor: Annotated[Real, Field(gt=1)] = math.exp(1.5)
    relative: Flag = False

    @property
    def log_variance(self) -> tuple[float, float]:
        """Prior mean and standard deviation of the logarithm of the variance, the arguments of `TolerancePrior`.

        Example:
            >>> LearnedTolerance(median=1.0, factor=math.e).log_variance
            (0.0, 2.0)
        """
        return 2 * math.log(self.median), 2 * math.log(self.factor)


def _std_or(words: tuple[str, ...]) -> BeforeValidator:
    """Make a validator that accepts a standard deviation or one of the words."""

    def check(value: Any) -> float | str:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and 0 <= value < math.inf:
            return float(value)
        if value in words:
            return value
        raise ValueError(f"must be a standard deviation ≥ 0 or {' or '.join(map(repr, words))}")

    return BeforeValidator(check)


def _form(value: Any) -> str:
    return "table" if isinstance(value, dict | LearnedTolerance) else "plain"


Sensor = Annotated[float | str, _std_or(("learn",))]
Tolerance = Annotated[
    Annotated[float | str, _std_or(("learn", "paper")), Tag("plain")] | Annotated[LearnedTolerance, Tag("table")],
    Discriminator(_form),
]
