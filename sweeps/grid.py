"""The work of a grid: a fixed list of combinations, whose state is what their directories say."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sweeps.claims import Claims
from sweeps.errors import SweepError
from sweeps.process import read_status, read_summary
from sweeps.trial import Outcome, Row, Status, Trial

GRID = "grid.json"
"""The list of its combinations in a sweep's directory."""

FIGURES = ("val_loss", "val_bits_per_byte", "val_top1")


class Grid:
    """Combinations in `directory`/0, 1, ...; the same list again goes on with those that are not finished.

    Failed ones are tried again too, from their checkpoints, once by every start of a sweeper.
    """

    def __init__(
        self, directory: Path, combinations: Sequence[Sequence[str]], fixed: Sequence[str],
        shown: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        """`combinations`: the overrides in which they differ; `fixed`: those of all; `shown`: how one may be written
        where others can read it.

        Raises:
            SweepError: the directory holds another list.
        """
        self.directory, self.combinations = directory, combinations
        self.claims = Claims(directory)
        self._outcomes: dict[int, Outcome] = {}
        self._born = time.time()
        self._shown = [[shown(word) for word in combination] for combination in combinations]
        listed = {"fixed": sorted(map(shown, fixed)), "runs": self._shown}
        file = directory / GRID
        with self.claims.alone():
            if self.claims.has_token():
                raise SweepError(f"sweep_dir={directory}: holds a search, not a grid of runs; choose another sweep_dir")
            if not file.exists():
                temporary = directory / ".grid.json.tmp"
                temporary.write_text(json.dumps(listed, indent=1) + "\n")
                os.replace(temporary, file)
            elif json.loads(file.read_text()) != listed:
                raise SweepError(
                    f"sweep_dir={directory}: holds another sweep (its list is in grid.json); choose another sweep_dir"
                )

    def claim(self) -> Trial | None:
        """The first combination that has not ended, that this sweeper has not tried and that nobody works on."""
        for number, words in enumerate(self.combinations):
            if number in self._outcomes or self._ended(number):
                continue
            claim = self.claims.take(number)
            if claim is None:
                continue
            if self._ended(number):  # by another sweeper, a moment ago
                claim.release()
                continue
            return Trial(number, list(words), self.directory / str(number), claim)
        return None

    def end(self, trial: Trial, outcome: Outcome) -> Outcome:
        """Note how it ended, and let it go."""
        self._outcomes[trial.number] = outcome
        trial.claim.release()
        return outcome

    def done(self) -> bool:
        """Whether every combination has ended, or was tried here."""
        return all(number in self._outcomes or self._ended(number) for number in range(len(self.combinations)))

    def rows(self) -> list[Row]:
        """Every combination as it stands."""
        rows = []
        for number, words in enumerate(self._shown):
            directory = self.directory / str(number)
            status, summary = read_status(directory), read_summary(directory)
            outcome = self._outcomes.get(number)
            said: Status = outcome.status if outcome else status.get("status", "waiting")
            if said == "running" and self.claims.abandoned(number):
                said = "interrupted"
            reason = outcome.reason if outcome else str(status.get("error", ""))
            seconds = outcome.seconds if outcome else float(summary.get("wall_seconds") or 0.0)
            figures = {name: summary[name] for name in FIGURES if isinstance(summary.get(name), float)}
            parameters = {word.partition("=")[0]: word.partition("=")[2] for word in words}
            rows.append(Row(number, parameters, " ".join(words), said, reason, seconds, figures))
        return rows

    def best(self) -> list[int]:
        """None: a grid has no objective."""
        return []

    def _ended(self, number: int) -> bool:
        """Whether its directory says finished; or failed, in another sweeper since this one began."""
        directory = self.directory / str(number)
        status = read_status(directory)
        if status.get("status") in ("finished", "pruned"):
            return True
        return status.get("status") == "failed" and float(status.get("time", 0.0)) > self._born
