"""What a sweep knows of one trial, and how it ended."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sweeps.claims import Claim

Status = Literal["waiting", "running", "finished", "pruned", "failed", "preempted", "interrupted", "submitted"]
"""`preempted`: stopped by a signal; it goes on from its checkpoint. `interrupted`: killed before it
could say so, and its sweeper with it; it goes on too. `submitted`: a cluster's job that has not ended.
"""


@dataclass(frozen=True)
class Outcome:
    """How a trial's process or job ended; `reason` says why a failed one failed; `seconds` that it ran."""

    status: Status
    reason: str = ""
    seconds: float = 0.0


@dataclass
class Trial:
    """One trial: its number names its directory, `words` are the overrides that tell it from the others."""

    number: int
    words: list[str]
    directory: Path
    claim: Claim
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A trial in the table at the end: what it was set to, how it ended, and its `figures` by their names."""

    number: int
    parameters: dict[str, Any]
    label: str
    status: Status
    reason: str
    seconds: float
    figures: dict[str, float]

    @property
    def shown(self) -> str:
        """The figures in a line."""
        return " ".join(f"{name}={value:.4g}" for name, value in self.figures.items())
