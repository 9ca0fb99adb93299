"""Draws the next point: never one that has been tried, and never the same one in two workers."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from sweeps.errors import SweepError
from sweeps.samplers import GridSampler
from sweeps.space import Axis, Point, Space

_SECOND_THOUGHTS = 10
"""So often the sampler is asked again for a point that is new, before one is drawn at random."""

_DRAWS = 1000
"""Points drawn at random before those of a finite space are gone through in order."""


def seed_of(seed: int, number: int) -> int:
    """The sampler's seed for trial `number`: another one for each, however many workers and restarts there were."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4])


def identity(point: Any) -> str:
    """What two equal points have in common."""
    return json.dumps(point, sort_keys=True)


class Untried(BaseSampler):
    """The points of another sampler without those that a trial of the study has already, whatever became of it."""

    def __init__(self, sampler: BaseSampler, space: Space, others: Sequence[FrozenTrial], seed: int) -> None:
        """`others`: the trials so far; `seed`: for points drawn at random."""
        self.sampler, self.space = sampler, space
        self.tried = {identity(other.params) for other in others}
        self._random = RandomSampler(seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.space.distributions()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        again: Point | None = None
        for point in self._proposals(study, trial):
            if any(point.get(name) != value for name, value in trial.params.items()):
                continue  # a part was drawn already, by a sweeper that was killed over it
            if identity(point) not in self.tried:
                return point
            again = again or point
        if again is None:
            raise ValueError("every point of the space has been tried")
        return again

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self.sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self.sampler.after_trial(study, trial, state, values)

    def _proposals(self, study: Study, trial: FrozenTrial) -> Iterator[Point]:
        if not isinstance(self.sampler, GridSampler):
            for _ in range(_SECOND_THOUGHTS):
                yield self._draw(self.sampler, study, trial)
            for _ in range(_DRAWS):
                yield self._draw(self._random, study, trial)
        if self.space.size is not None:
            yield from self.space.points()

    def _draw(self, sampler: BaseSampler, study: Study, trial: FrozenTrial) -> Point:
        try:
            return self._point(sampler, study, trial)
        except ValueError as error:  # so Optuna's samplers refuse a space or a study that is not for them
            raise SweepError(f"sweep/sampler: {' '.join(str(error).split())}") from error

    def _point(self, sampler: BaseSampler, study: Study, trial: FrozenTrial) -> Point:
        together = sampler.infer_relative_search_space(study, trial)
        drawn = sampler.sample_relative(study, trial, together)

        def value_of(axis: Axis) -> Any:
            if axis.name in trial.params:
                return trial.params[axis.name]
            if axis.distribution.single():
                return axis.ends()[0]
            if axis.name in drawn and together[axis.name] == axis.distribution:
                return drawn[axis.name]
            return sampler.sample_independent(study, trial, axis.name, axis.distribution)

        return self.space.walk(value_of)
