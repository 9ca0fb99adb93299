"""An Optuna study that several sweepers share: who runs which trial, and what has been tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.claims import Claim, Claims
from sweeps.errors import SweepError
from sweeps.ownership import check_directory, check_same
from sweeps.proposals import Untried, identity, seed_of
from sweeps.samplers import GridSampler
from sweeps.space import Space
from sweeps.storage import open_storage, quiet, suggest
from sweeps.trial import Outcome, Row, Status, Trial

_STATUS: dict[TrialState, Status] = {
    TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
    TrialState.RUNNING: "running", TrialState.WAITING: "waiting",
}  # fmt: skip


class SharedStudy:
    """The trials of one sweep directory.

    Points are drawn under a lock, so no two workers draw the same. A trial that is `RUNNING` in the storage and whose
    lock nobody holds was interrupted: it goes on under its number. `n_trials` counts all trials, also those that were
    pruned or failed.
    """

    def __init__(
        self,
        directory: Path,
        space: Space,
        make_sampler: Callable[[int], BaseSampler],
        pruner: BasePruner,
        *,
        metrics: Sequence[str],
        directions: Sequence[Literal["minimize", "maximize"]],
        n_trials: int,
        seed: int = 0,
        storage: str | None = None,
        name: str = "matmill",
        identity_words: Mapping[str, Any] = {},
    ) -> None:
        """Create the study or join it. `make_sampler` gives the sampler for a seed; `identity_words` is what must not
        have changed since it was created.

        Raises:
            SweepError: the storage cannot be reached, or holds another sweep under this name; or the sampler is a grid,
                and the space has no list of points.
        """
        quiet()
        self.directory, self.space, self.metrics, self.n_trials, self.seed = directory, space, metrics, n_trials, seed
        self.url = storage or f"sqlite:///{directory.absolute() / 'study.db'}"
        self.claims = Claims(directory)
        self._make_sampler = make_sampler
        self._set_aside: dict[int, Status] = {}
        sampler = make_sampler(seed)
        if isinstance(sampler, GridSampler) and space.size is None:
            raise SweepError("sweep/sampler=grid: an interval has no list of points; use range(...) or name its values")
        with self.claims.alone():
            self.storage = open_storage(self.url)
            self.study = optuna.create_study(
                study_name=name, storage=self.storage, directions=list(directions), load_if_exists=True,
                sampler=sampler, pruner=pruner,
            )  # fmt: skip
            check_directory(self.study, directory, self.claims)
            axes = [f"{name}: {distribution}" for name, distribution in space.distributions().items()]
            what = {"axes": axes, "objectives": [*metrics, *directions], **identity_words}
            check_same(self.study, directory, what)

    @property
    def name(self) -> str:
        """The study's name in its storage."""
        return self.study.study_name

    def trials(self) -> list[FrozenTrial]:
        """All trials, by number."""
        return self.study.get_trials(deepcopy=False)

    def claim(self) -> Trial | None:
        """A trial that this sweeper is to run now: one that was interrupted, else a new one; None: there is none."""
        with self.claims.alone():
            trials = self.trials()
            for trial in trials:
                if trial.state is TrialState.RUNNING and trial.number not in self._set_aside:
                    claim = self.claims.take(trial.number)
                    if claim is None:
                        continue
                    if self.trials()[trial.number].state is TrialState.RUNNING:
                        return self._begin(trial, claim)
                    claim.release()  # it ended a moment ago
            if len(trials) >= self.n_trials or self._exhausted(trials):
                return None
            if (taken := self.directory / str(len(trials))).exists():
                raise SweepError(f"{taken}: is of another sweep than the study; choose another sweep_dir")
            study_id = self.storage.get_study_id_from_name(self.name)
            number = self.storage.get_trial(self.storage.create_new_trial(study_id)).number
            claim = self.claims.take(number)
            if claim is None:
                raise SweepError(f"{self.directory}: trial {number} is locked before it exists")
            return self._begin(self.trials()[number], claim)

    def tell(self, trial: Trial, outcome: Outcome, values: Sequence[float] | None) -> None:
        """Note how `trial` ended, and let it go; one that goes on later stays open, but not for this sweeper."""
        found = self.trials()[trial.number]
        self.note(found, "seconds", float(found.user_attrs.get("seconds", 0.0)) + outcome.seconds)
        states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        if outcome.status == "failed":
            self.note(found, "reason", outcome.reason)
        if outcome.status in states:
            self.study.tell(trial.number, values, state=states[outcome.status])
        else:
            self._set_aside[trial.number] = outcome.status
        trial.claim.release()

    def note(self, trial: FrozenTrial, key: str, value: Any) -> None:
        """Keep a fact with a trial in the storage."""
        self.storage.set_trial_user_attr(trial._trial_id, key, value)

    def done(self) -> bool:
        """Whether no trial is left to draw, to go on with, or to wait for."""
        trials = self.trials()
        if any(t.state is TrialState.RUNNING and t.number not in self._set_aside for t in trials):
            return False
        return len(trials) >= self.n_trials or self._exhausted(trials)

    def rows(self) -> list[Row]:
        """Every trial as it stands; a pruned one's figure is the last it reported."""
        with self.claims.alone():  # between a trial's creation and its claim nobody may look at its lock
            trials = self.trials()
            running = [trial.number for trial in trials if trial.state is TrialState.RUNNING]
            status_of: dict[int, Status] = {n: "interrupted" for n in running if self.claims.abandoned(n)}
        status_of |= {number: self._set_aside[number] for number in running if number in self._set_aside}
        rows = []
        for trial in trials:
            label = self.space.label(trial.params)
            status = status_of.get(trial.number, _STATUS[trial.state])
            figures = dict(zip(self.metrics, trial.values or [], strict=False))
            reason, seconds = trial.user_attrs.get("reason", ""), trial.user_attrs.get("seconds", 0.0)
            rows.append(Row(trial.number, dict(trial.params), label, status, reason, seconds, figures))
        return rows

    def best(self) -> list[FrozenTrial]:
        """The best finished trial; with several objectives the Pareto set, the best in the first objective first."""
        if not any(trial.state is TrialState.COMPLETE for trial in self.trials()):
            return []
        downward = self.study.directions[0] is optuna.study.StudyDirection.MINIMIZE
        found = self.study.best_trials if len(self.metrics) > 1 else [self.study.best_trial]
        return sorted(found, key=lambda trial: (trial.values[0] if downward else -trial.values[0], trial.number))

    def _begin(self, found: FrozenTrial, claim: Claim) -> Trial:
        """Give a trial the rest of its point: all of it when it is new, nothing when it ran before."""
        others = [other for other in self.trials() if other.number != found.number]
        seed = seed_of(self.seed, found.number)
        self.study.sampler = Untried(self._make_sampler(seed), self.space, others, seed)
        trial = optuna.Trial(self.study, found._trial_id)
        point = self.space.walk(lambda axis: suggest(trial, axis.name, axis.distribution))
        return Trial(found.number, self.space.words(point), self.directory / str(found.number), claim)

    def _exhausted(self, trials: Sequence[FrozenTrial]) -> bool:
        size = self.space.size
        return size is not None and len({identity(trial.params) for trial in trials}) >= size
