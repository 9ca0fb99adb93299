"""The ``matmill`` command line: compose the configuration, run one command, word its errors."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matmill.errors import ConfigError, describe, did_you_mean
from matmill.launch import Launch, launch_or_alone

if TYPE_CHECKING:
    from omegaconf import DictConfig

COMMANDS = {"train", "plan", "config", "generate", "evaluate", "export", "report", "bench"}
PRIMARY = {"config": "train", "export": "export_run"}
FAILED, USAGE, INTERRUPTED = 1, 2, 130


@dataclass
class Arguments:
    """The command line, split into what Hydra reads (`overrides`) and what it does not."""

    words: list[str] = field(default_factory=list)
    command: str | None = None
    overrides: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    config_dir: str | None = None
    multirun: bool = False
    help: bool = False
    version: bool = False
    debug: bool = False

    @property
    def name(self) -> str:
        """What error messages begin with."""
        return f"matmill {self.command}" if self.command else "matmill"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``matmill COMMAND [overrides]`` and return its exit status.

    0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted; a command that leaves with its own
    status (75 of a preempted run) keeps it. An error is one line on standard error; its traceback is shown
    with ``debug=true``.
    """
    arguments = Arguments()
    try:
        parse(sys.argv[1:] if argv is None else argv, arguments)
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        if launch_or_alone().is_main:
            print(f"{arguments.name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away: leave without a word, also at interpreter exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return _report(error, arguments)


def parse(words: Sequence[str], arguments: Arguments) -> None:
    """Split the words of the command line. Raises ConfigError for an unknown command or option."""
    arguments.words = list(words)
    remaining = iter(words)
    for word in remaining:
        if word in ("-h", "--help"):
            arguments.help = True
        elif word == "--version":
            arguments.version = True
        elif word in ("-m", "--multirun"):
            arguments.multirun = True
        elif word == "--config-dir" or word.startswith("--config-dir="):
            arguments.config_dir = word.partition("=")[2] or next(remaining, None)
            if not arguments.config_dir:
                raise ConfigError("--config-dir: needs a directory")
        elif word.startswith("-"):
            known = ["--help", "--version", "--multirun", "--config-dir"]
            raise ConfigError(f"{word}: unknown option{did_you_mean(word, known)}")
        elif arguments.command is None:
            if word not in COMMANDS:
                hint = did_you_mean(word, COMMANDS) or f"; commands: {', '.join(sorted(COMMANDS))}"
                raise ConfigError(f"{word}: unknown command{hint}")
            arguments.command = word
        else:
            # `bench train` reads better than `bench what=train`, and `report RUN` than `report paths=[RUN]`.
            if "=" not in word and arguments.command == "report":
                arguments.paths.append(word)
            else:
                bare = arguments.command == "bench" and "=" not in word
                arguments.overrides.append(f"what={word}" if bare else word)
            arguments.debug |= word.lower() == "debug=true"


def _dispatch(arguments: Arguments) -> int:
    if arguments.version:
        import matmill

        print(f"matmill {matmill.__version__}")
        return 0
    if arguments.help or arguments.command is None:
        from matmill.help import help_text

        print(help_text(arguments.command, arguments.config_dir))
        return 0 if arguments.help else USAGE
    if arguments.multirun:
        return _several(arguments)
    if arguments.command == "plan":
        from matmill.plan import run as plan

        return plan(arguments.overrides, arguments.config_dir)
    if arguments.command == "config":
        from matmill.config import show

        return show(arguments.overrides, arguments.config_dir)
    from matmill.compose import compose

    config = compose(PRIMARY.get(arguments.command, arguments.command), arguments.overrides, arguments.config_dir)
    if arguments.paths:
        config.paths = [*config.paths, *arguments.paths]
    if isinstance(config.get("run"), str):
        from matmill.best_run import run_at

        config.run = run_at(config.run)
    arguments.debug = arguments.debug or config.get("debug") is True
    status = _elsewhere(config, arguments) if arguments.command in ("train", "bench") else None
    if status is not None:
        return status
    if arguments.command == "train":
        from matmill.schema import check

        check(config)
    module = importlib.import_module(f"matmill.{arguments.command}")
    return int(module.run(config) or 0)


def _several(arguments: Arguments) -> int:
    """Run a command for every combination of comma-separated values."""
    if arguments.command == "train":
        from matmill.multirun import run_all

        return run_all(arguments.overrides, arguments.config_dir)
    if arguments.command == "plan":
        from matmill.plan import run_variants as plan_variants

        return plan_variants(arguments.overrides, arguments.config_dir)
    if arguments.command == "bench" and "what=predict" in arguments.overrides:
        from matmill.bench_predict import run_variants

        return run_variants([word for word in arguments.overrides if word != "what=predict"], arguments.config_dir)
    raise ConfigError("-m: only train, plan and bench predict take several values")


def _elsewhere(config: DictConfig, arguments: Arguments) -> int | None:
    """The exit status where other processes do the work: those of a job, or one for each device; else None."""
    from matmill import workers

    launch = Launch.read()
    launcher = config.get("launcher") or {}
    if arguments.command == "train" and launcher.get("kind") == "slurm":
        from matmill.slurm import submit

        return submit(config, arguments.overrides, arguments.config_dir)
    for name in launcher:
        if name != "kind":
            raise ConfigError(f"launcher.{name}: is a key of launcher=slurm only")
    if launch.starter in ("matmill", "torchrun"):
        workers.end_with_parent(int(os.environ.get("MATMILL_PARENT", os.getppid())))
    elif "MATMILL_SWEEPER" in os.environ:
        workers.end_with_parent(int(os.environ["MATMILL_SWEEPER"]))
    count = workers.count_workers(config.get("devices")) if launch.starter == "user" else 1
    return workers.run_workers(arguments.words, count, str(config.run_dir)) if count > 1 else None


def _report(error: Exception, arguments: Arguments) -> int:
    """Print `error`, leave its traceback in the run directory if there is one; the exit status."""
    run = sys.modules.get("matmill.run")
    if run is not None and hasattr(run, "record_failure"):
        run.record_failure(error)
    if arguments.debug:
        traceback.print_exception(error)
    usage, launch = isinstance(error, ConfigError), launch_or_alone()
    if usage and not launch.is_main:
        # Every process finds the same mistake, and the launcher ends all when the first has said it and left. What
        # only another machine has, such as a path that is not there, is said by one of its processes.
        time.sleep(10 if launch.local_rank == 0 else 20)
    where = arguments.name if launch.is_main else f"{arguments.name} [rank {launch.rank}, {socket.gethostname()}]"
    for line in describe(error).splitlines():
        print(f"{where}: {line}", file=sys.stderr)
    return USAGE if usage else FAILED
