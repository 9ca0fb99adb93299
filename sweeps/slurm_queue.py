"""A SLURM cluster's queue as it shows one user's jobs; works without the cluster's accounting database."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps.errors import SweepError

ENDED = {
    "COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE",
    "REVOKED", "LAUNCH_FAILED",
}  # fmt: skip
"""States that a job does not come back from: one that is requeued is shown as COMPLETING and then as PENDING."""

_POLL_S = 5.0
"""Between two looks at the queue, which is one call for all jobs."""
_AGAIN_S = 30.0
"""Before the cluster is asked again for what it has refused."""
_UNSEEN_S = 60.0
"""How long a job that was submitted may be missing in the queue before it counts as gone."""
_COMMAND_S = 120
"""How long one of SLURM's commands may take."""

_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@dataclass(frozen=True)
class Job:
    """A job: its number, SLURM's word for its state, the seconds its present start has run, and its script."""

    number: str
    state: str
    seconds: float = 0.0
    script: str = ""


class Queue:
    """What a sweeper asks of the cluster. It puts up with refusals for as long as jobs of its own are on their way."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say`: told once of each refusal that is waited out."""
        self._say = say
        self._jobs: dict[str, Job] = {}
        self._looked = self._looked_well = float("-inf")
        self._refused, self._ask_again = "", float("-inf")
        self._outage = ""
        self._ours: dict[str, float] = {}
        self._seen: set[str] = set()

    @property
    def closed(self) -> bool:
        """Whether something was refused a moment ago, so that there is no use in asking for more."""
        return time.monotonic() < self._ask_again

    def running(self, script: Path, number: str) -> Job | None:
        """The job that runs `script` or has the `number` noted beside it, if it has not ended; watched from now on.

        Raises:
            BlockingIOError: the queue cannot be seen now.
            ValueError: nor is there any job to wait for meanwhile.
        """
        if problem := self._look():
            self._refuse(problem)
        tail = os.path.join(*script.parts[-3:])  # another machine may know the file system by another path
        for job in self._jobs.values():
            same = job.script == str(script) or (job.number == number and job.script.endswith(tail))
            if same and job.state not in ENDED:
                self._ours[job.number] = time.monotonic()
                return job
        return None

    def submit(self, script: Path, environment: Mapping[str, str], lock: int) -> str:
        """Hand `script` to sbatch; the job's number. A sweeper killed meanwhile holds `lock` until sbatch is through.

        Raises:
            BlockingIOError: it is refused now.
            ValueError: it is refused, and no job is on its way that could be waited for.
        """
        try:
            number = sbatch(script, environment, [lock])
        except ValueError as error:
            self._refuse(str(error))
        self._ours[number] = time.monotonic()
        self._refused = ""
        return number

    def look(self, number: str) -> Job | None:
        """A job of ours as the last look at the queue has it; None when it is gone."""
        if time.monotonic() - self._looked > _POLL_S:
            problem = self._look()
            if problem and not self._outage:
                self._say(f"{problem}; waiting")
            self._outage = problem
        job = self._jobs.get(number)
        if job is not None:
            self._seen.add(number)
            return job
        waited = self._looked_well - self._ours[number]
        return None if waited > (0 if number in self._seen else _UNSEEN_S) else Job(number, "PENDING")

    def forget(self, number: str) -> None:
        """A job has ended."""
        self._ours.pop(number, None)
        self._seen.discard(number)

    def cancel(self, number: str) -> None:
        """End a job: SLURM sends SIGTERM, and after its KillWait SIGKILL."""
        _run("scancel", number)

    def _look(self) -> str:
        """Read the queue; what is wrong if it cannot be read."""
        self._looked = time.monotonic()
        done = _run("squeue", "--noheader", "--states=all", f"--user={os.getuid()}", "--format=%i|%T|%M|%o")
        if done.returncode:
            return _last_words(done) or "squeue failed"
        rows = [line.split("|", 3) for line in done.stdout.splitlines()]
        self._jobs = {row[0]: Job(row[0], row[1], _seconds(row[2]), row[3]) for row in rows if len(row) == 4}
        self._looked_well = self._looked
        return ""

    def _refuse(self, problem: str) -> None:
        if not self._ours:
            raise SweepError(f"launcher=slurm: {problem}")
        self._ask_again = time.monotonic() + _AGAIN_S
        if problem != self._refused:
            self._refused = problem
            self._say(f"{problem}; waiting")
        raise BlockingIOError(problem)


def sbatch(script: Path, environment: Mapping[str, str], inherited: Sequence[int] = ()) -> str:
    """Submit `script`; the job's number. The job gets the `environment`, unless the script or the site says otherwise.

    What SLURM has set for a job that this process may be in would bind the new one too, so it is left out. `inherited`:
    file descriptors that sbatch holds too.

    Raises:
        ValueError: sbatch refuses, in its words.
    """
    inside = "SLURM_JOB_ID" in environment
    given = {k: v for k, v in environment.items() if not (inside and k.startswith("SLURM_")) or k in _KEPT}
    done = _run("sbatch", "--parsable", str(script), environment=given, inherited=inherited)
    if done.returncode:
        raise SweepError(_last_words(done) or "sbatch failed")
    return done.stdout.strip().rpartition("\n")[2].partition(";")[0]


def accounted_state(number: str) -> str:
    """The state in which a job that is gone from the queue has ended, where the cluster keeps account; else empty."""
    done = _run("sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={number}", "--format=State")
    words = done.stdout.split()
    return words[0] if done.returncode == 0 and words else ""


def _run(
    *words: str, environment: Mapping[str, str] = os.environ, inherited: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in environment.items() if not name.startswith("SQUEUE_")}
    try:
        return subprocess.run(
            words, env=given, capture_output=True, text=True, timeout=_COMMAND_S, pass_fds=inherited,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", f"there is no {words[0]} here")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"{words[0]} did not answer for {_COMMAND_S} s")


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split())


def _seconds(elapsed: str) -> float:
    """SLURM's ``[days-][[hours:]minutes:]seconds``; 0 where it says INVALID."""
    days, _, clock = elapsed.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
        return float(sum(part * 60**power for power, part in enumerate(reversed(parts))) + int(days or 0) * 86400)
    except ValueError:
        return 0.0
