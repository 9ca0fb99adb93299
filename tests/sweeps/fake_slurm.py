"""Stand-ins for SLURM's commands: jobs are files, in which a test says what has become of them."""

from pathlib import Path

_COMMANDS = {
    "sbatch": """
touch "$fake/asked"
[ -s "$fake/delay" ] && sleep "$(cat "$fake/delay")"
if [ -s "$fake/refusal" ]; then cat "$fake/refusal" >&2; exit 1; fi
number=$(($(ls "$fake/jobs" | wc -l) + 1))
for script; do :; done
echo "PENDING|0:00|$script" > "$fake/jobs/$number"
env > "$fake/environment"
run=$(dirname "$(dirname "$script")")
[ -f "$fake/on_submit" ] && . "$fake/on_submit"
echo "$number"
""",
    "squeue": """
if [ -s "$fake/outage" ]; then cat "$fake/outage" >&2; exit 1; fi
for job in "$fake/jobs/"*; do [ -s "$job" ] && echo "$(basename "$job")|$(cat "$job")"; done
echo "$@" > "$fake/squeue"
""",
    "scancel": """
echo "$@" >> "$fake/cancelled"
""",
    "sacct": """
[ -s "$fake/account" ] && cat "$fake/account"
""",
}


class FakeSlurm:
    """A folder with the commands, in `bin`, and what they know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir(parents=True)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, script in _COMMANDS.items():
            file = self.bin / name
            file.write_text(f"#!/bin/sh\nfake='{folder}'\n{script.strip()}\n")
            file.chmod(0o755)

    @property
    def submitted(self) -> int:
        """How many jobs there have been."""
        return len(list((self.folder / "jobs").iterdir()))

    def put(self, number: int, state: str, elapsed: str = "0:10") -> None:
        """The queue shows a job so from now on."""
        file = self.folder / "jobs" / str(number)
        script = file.read_text().strip().split("|")[2]
        file.write_text(f"{state}|{elapsed}|{script}\n")

    def lose(self, number: int) -> None:
        """The queue does not know the job any more."""
        (self.folder / "jobs" / str(number)).write_text("")

    def say(self, what: str, text: str) -> None:
        """`refusal` of sbatch, `outage` of squeue, `account` of sacct; an empty text ends it. `on_submit`: shell that
        runs at each submission and knows $number, $script and $run, the run's directory; `delay`: seconds before it.
        """
        (self.folder / what).write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """What the last job was submitted with."""
        lines = (self.folder / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @property
    def cancelled(self) -> list[str]:
        """The numbers that scancel was given."""
        file = self.folder / "cancelled"
        return file.read_text().split() if file.exists() else []
