"""A sampler that Optuna does not have in a form that several workers can share."""

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial


class GridSampler(BaseSampler):
    """Every point of a finite space, in order.

    The points come from `sweeps.proposals.Untried`, which knows the space and what has been tried; Optuna's own grid
    sampler wants the space as an argument and cannot be used where trials are asked for one by one.
    """

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError("sweep/sampler=grid: its points come from the whole space")
