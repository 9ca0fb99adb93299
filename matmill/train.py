"""`matmill train`: from a config to a trained run, in one story."""

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as L
from omegaconf import DictConfig

from callbacks.boundary import INTERRUPTED, Boundary, Preempted
from callbacks.pruning import Pruned
from matmill import assemble, summary
from matmill.environment import write_environment
from matmill.errors import ConfigError, describe
from matmill.group import Meeting, check_gpus
from matmill.launch import Launch
from matmill.report import write_report
from matmill.run import RunDirectory, record_failure
from matmill.run_plan import write_run_plan
from matmill.schema import check
from strategies.checkpoint import load_meta


def run(config: DictConfig) -> int:
    """Train what `config` says in its run directory; 0 when the run is finished.

    Asked to stop by a signal, it saves at the next step boundary and leaves through `Preempted` (exit status 75; under
    torchrun 0, which would take anything else for a failure and start the run again).
    """
    launch = Launch.read()
    launch.check_devices(config.devices)
    check_gpus(launch)
    assemble.quiet_libraries()
    data = assemble.build_data(config)
    check(config, filled=())  # what the data could not fill is missing
    max_steps = data.max_steps = assemble.count_steps(config, data)
    module = assemble.build_module(config)
    directory = RunDirectory(Path(config.run_dir).absolute())
    boundary = assemble.build_boundary(config, directory.checkpoints.path)
    trainer = assemble.build_trainer(config, max_steps, boundary)

    meeting = Meeting(launch)
    start = meeting.decide(lambda: _start(config, directory, max_steps), last=lambda start: start["finished"])
    if start["finished"]:
        return 0
    directory.claim.check_shared(start["token"])
    if launch.is_main:
        directory.start(config, start["step"])
        if hasattr(data, "save"):
            data.save(directory.path / "data")
        write_environment(directory.path)
        write_run_plan(config, directory.path, launch.world_size)
        done = f"continues after step {start['step']} of {max_steps}" if start["step"] else f"{max_steps} steps"
        _say(f"{config.run_dir}: {done}")
    boundary.take_signals(trainer)
    meeting.form_group(trainer.strategy)
    try:
        _fit(trainer, boundary, module, datamodule=data, ckpt_path=start["checkpoint"], weights_only=True)
    except Pruned:
        if launch.is_main:
            summary.write(directory.path, trainer, module, config, "pruned")
            directory.set_status("pruned", trainer.global_step)
            _say(f"pruned by the sweep after step {trainer.global_step}")
        return 0
    except SystemExit as leaving:
        preempted = isinstance(leaving, Preempted)
        if launch.is_main:
            status = "preempted" if preempted else "interrupted"
            summary.write(directory.path, trainer, module, config, status)
            directory.set_status(status, trainer.global_step, exit_code=leaving.code)
            saved = "and saved" if preempted else "without saving"
            what = f"stopped by a signal after step {trainer.global_step}, {saved}"
            _say(f"{what}; to go on, the same command with run_dir={config.run_dir}")
        if preempted and launch.starter == "torchrun":
            return 0
        raise
    if launch.is_main:
        directory.checkpoints.remove_damaged()
        summary.write(directory.path, trainer, module, config, "finished")
        directory.set_status("finished", trainer.global_step)
        write_report(directory.path)
        summary.show(directory.path, Path(config.run_dir))
    return 0


def _start(config: DictConfig, directory: RunDirectory, max_steps: int) -> dict[str, Any]:
    """What the first process decides for all: the checkpoint to go on from, or that nothing is left to do.

    Raises:
        ConfigError: the directory is another run's, or busy, or there is no checkpoint as asked for.
    """
    token = directory.claim.take()
    try:
        directory.same_run(config)
        checkpoint = directory.resume_from(config.resume)
        step = int(load_meta(checkpoint)["global_step"]) if checkpoint else 0
        finished = step >= max_steps
        if finished and directory.checkpoints.latest() is None:
            raise ConfigError(f"resume={config.resume} has {step} steps behind it, trainer.max_steps={max_steps}")
    except ConfigError:
        directory.claim.give_up()
        raise
    if finished:
        if directory.status.get("status") != "finished":
            _finish_late(directory, step)
        _say(f"{config.run_dir} is finished: {step} of {max_steps} steps are done. To go on, raise trainer.max_steps.")
    path = str(checkpoint) if checkpoint else None
    return {"checkpoint": path, "step": step, "finished": finished, "token": token}


def _fit(trainer: L.Trainer, boundary: Boundary, *arguments: Any, **options: Any) -> None:
    """Train; a failure that follows a signal counts as the interruption that it is.

    A signal to the whole process group also ends compilers and other processes, on which this one then fails.
    """
    try:
        trainer.fit(*arguments, **options)
    except Exception as error:
        if not boundary.signal:
            raise
        record_failure(error)
        print(f"matmill train: interrupted by a signal: {describe(error)}", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from error


def _finish_late(directory: RunDirectory, steps: int) -> None:
    """Evaluate and close a run that was stopped between its last step and its summary."""
    from matmill import held_out
    from matmill.evaluate import evaluate

    loaded = held_out.load(str(directory.path), "latest")
    summary.write_late(directory.path, steps, loaded.checkpoint, evaluate(loaded.module, loaded.data))
    directory.set_status("finished", steps)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
