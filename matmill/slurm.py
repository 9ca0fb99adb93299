"""`matmill train launcher=slurm`: writes the run's job script into its directory and submits it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig

from matmill.errors import ConfigError
from matmill.launch import Launch
from matmill.overrides import parse_overrides
from matmill.schema import check
from sweeps.slurm_queue import sbatch

# srun ends all tasks when one has failed, or the others would wait for it. Its exit status says little, as tasks that
# it ends count too, so what decides is a status.json of this very start.
_SCRIPT = """\
#!/bin/bash
# Written by `matmill train launcher=slurm`. To go on after a failure: sbatch {file}
{options}

{setup}touch {started}
srun --kill-on-bad-exit=1 {command}
status=$?

if [ {status_file} -nt {started} ] && grep -q '"status": "preempted"' {status_file}; then
{requeue}
fi
exit $status
"""

_REQUEUE = """\
    echo "saved; back to the queue"
    scontrol requeue "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}" && sleep 60
    echo "could not be put back; to go on: sbatch FILE\""""


def submit(config: DictConfig, overrides: Sequence[str], config_dir: str | None) -> int:
    """Write RUN/slurm/job.sh for the composed `config` and hand it to sbatch; 0 when that is done.

    Raises:
        ConfigError: a setting is wrong, this is a job's process already, or sbatch refuses.
    """
    if Launch.read().world_size > 1:
        raise ConfigError("launcher=slurm: submits a job and is started once, without torchrun or srun")
    file = write_script(config, overrides, config_dir)
    print(file)
    if not config.launcher.submit:
        return 0
    if shutil.which("sbatch") is None:
        print(f"matmill train: there is no sbatch here; where there is: sbatch {file}", file=sys.stderr)
        return 0
    try:
        print(f"job {sbatch(file, os.environ)}")
    except ValueError as error:
        raise ConfigError(f"launcher=slurm: {error}") from error
    return 0


def write_script(config: DictConfig, overrides: Sequence[str], config_dir: str | None) -> Path:
    """Check the composed `config` and write its RUN/slurm/job.sh; the file.

    Raises:
        ConfigError: a setting is wrong, or the directory cannot be written.
    """
    check(config)
    if config.devices == "auto":
        raise ConfigError("devices=auto: with launcher=slurm say how many processes a machine gets")
    file = Path(config.run_dir).absolute() / "slurm" / "job.sh"
    words = [word for word, key in zip(overrides, _keys(overrides), strict=True) if key not in ("launcher", "run_dir")]
    words.append(f"run_dir={QuotedString(str(file.parents[1]), Quote.single).with_quotes()}")
    if config_dir is not None:
        words.append(f"--config-dir={Path(config_dir).absolute()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script(config, file, words))
    except OSError as error:
        raise ConfigError(f"run_dir={config.run_dir}: {error.strerror}") from error
    return file


def script(config: DictConfig, file: Path, words: Sequence[str]) -> str:
    """The text of the job script `file`, which runs `matmill train WORDS` in every task."""
    launcher = config.launcher
    run_dir = file.parents[1]
    warning = f"USR1@{launcher.warning_seconds}"
    options = {
        "job-name": re.sub(r"[^\w.-]+", "-", str(config.run_name)),
        "chdir": os.getcwd(),
        "output": run_dir / "slurm" / "%j.out",
        "open-mode": "append",  # a requeued job goes on in the same file
        "nodes": launcher.nodes,
        "ntasks-per-node": config.devices,
        "gpus-per-node": launcher.gpus_per_node or None,
        "cpus-per-task": launcher.cpus_per_task,
        "mem": launcher.memory_per_node,
        "time": launcher.time,
        "partition": launcher.partition,
        "account": launcher.account,
        "qos": launcher.qos,
        "constraint": launcher.constraint,
        "signal": warning,  # to the tasks, which save and leave
    }
    lines = [f"#SBATCH --{name}={shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    lines += ["#SBATCH --requeue" if launcher.requeue else "#SBATCH --no-requeue"]
    lines += [f"#SBATCH {option}" for option in launcher.options]
    search_path = os.environ.get("PYTHONPATH")
    setup = [f"export PYTHONPATH={shlex.quote(_absolute(search_path))}"] if search_path else []
    if launcher.cpus_per_task is not None:  # srun does not take it over from sbatch
        setup.append(f"export SRUN_CPUS_PER_TASK={launcher.cpus_per_task}")
    setup += launcher.setup
    quoted = shlex.quote(str(file))
    return _SCRIPT.format(
        file=quoted,
        options="\n".join(lines),
        setup="".join(f"{line}\n" for line in setup),
        started=shlex.quote(str(file.with_name("started"))),
        command=shlex.join([sys.executable, "-P", "-m", "matmill", "train", *words]),
        status_file=shlex.quote(str(run_dir / "status.json")),
        requeue=_REQUEUE.replace("FILE", quoted.replace('"', '\\"')) if launcher.requeue else "    echo saved",
    )


def _keys(overrides: Sequence[str]) -> list[str]:
    """The first part of each override's key: the group, or the key itself."""
    return [re.split(r"[.@/]", parsed.key_or_group)[0] for parsed in parse_overrides(overrides)]


def _absolute(search_path: str) -> str:
    return os.pathsep.join(os.path.abspath(entry) for entry in search_path.split(os.pathsep))
