"""LaplaceRecipe: members trained to their modes, and a linearised Laplace posterior about them (V5)."""

import os
from dataclasses import dataclass
from typing import ClassVar

from equipoise.data import AnyRows, Rows, TrainingData
from equipoise.errors import InputError
from equipoise.network import POSTERIORS, ConstrainedBNN, PosteriorFactory, member_seeds, starting_members
from equipoise.training.distributed import Group
from equipoise.training.loop import train
from equipoise.training.modes import MODE_PHASES, ModesLearner, starting_modes
from equipoise.training.recipe import Callback, Fit, Recipe

MOST_OUTPUTS = 8  # at 32 it was measured to be slow and too sure: few whole rows fit into the evidence


@dataclass(frozen=True, kw_only=True)
class LaplaceRecipe(Recipe):
    """The recipe of the posterior "laplace".

    All rows are trained on. The plan's `max_epochs` bounds the epochs; a phase takes at most half of them, and at
    most twelve. Sensors do not depend on the inputs.

    Args:
        n_members: Number of networks.
    """

    posterior: PosteriorFactory = POSTERIORS["mean-field"]  # whose starting weights alone are used
    n_members: int = 3

    holds_out: ClassVar[bool] = False
    has_sensor_head: ClassVar[bool] = False

    def build(self, data: TrainingData) -> ConstrainedBNN:
        """Build the model; the argument is that of `Recipe.build`.

        Raises: InputError, if there are more outputs than this posterior serves.
        """
        if data.Y.shape[1] > MOST_OUTPUTS:
            rule = f"posterior='laplace' serves at most {MOST_OUTPUTS} outputs, but got {data.Y.shape[1]}"
            raise InputError(f"{rule}. Use posterior='mean-field'.")
        return super().build(data)

    def fit(
        self,
        model: ConstrainedBNN,
        rows: AnyRows,
        validation: Rows | None,
        *,
        checkpoint: str | os.PathLike | None = None,
        verbose: bool = False,
        callback: Callback = None,
    ) -> Fit:
        """Train the members, and linearise them; arguments are those of `Recipe.fit`.

        Rows that the user holds out decide nothing.
        """
        seeds = member_seeds(self.seed, self.n_members)
        trained = starting_modes(model, starting_members(model.network, seeds).to(self.device))

        def learner(model: ConstrainedBNN, seed: int, group: Group) -> ModesLearner:
            return ModesLearner(model, seed, group, n_rows=len(rows))

        history = train(
            trained,
            rows,
            None,
            self.plan,
            seed=self.seed,
            phases=MODE_PHASES,
            learner=learner,
            checkpoint=checkpoint,
            verbose=verbose,
            callback=callback,
        )
        posterior = ModesLearner(trained, self.seed, n_rows=len(rows)).posterior(rows)
        return Fit(trained.variant(network=trained.network.with_posterior(posterior)).eval(), history)
