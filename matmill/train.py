"""`matmill train`: from a config to a trained run, in one story."""

import os
import sys
from pathlib import Path

from omegaconf import DictConfig

from matmill import assemble, summary
from matmill.errors import ConfigError
from matmill.run import RunDirectory


def run(config: DictConfig) -> int:
    """Train what `config` says in its run directory; 0 when the run is finished.

    Asked to stop by a signal, it saves at the next step boundary and leaves through `Preempted` (exit status 75).
    """
    from callbacks.boundary import Preempted
    from matmill.schema import check
    from strategies.checkpoint import load_meta

    assemble.quiet_libraries()
    data = assemble.build_data(config)
    check(config, filled=())  # what the data could not fill is missing
    max_steps = assemble.count_steps(config, data)
    module = assemble.build_module(config)

    directory = RunDirectory(Path(config.run_dir).absolute())
    main_process = not int(os.environ.get("LOCAL_RANK", "0"))
    if main_process:
        directory.claim()
    directory.same_run(config)
    checkpoint = directory.resume_from(config.resume)
    done = int(load_meta(checkpoint)["global_step"]) if checkpoint else 0
    if done >= max_steps and main_process:
        if directory.checkpoints.latest() is None:
            raise ConfigError(f"resume={config.resume} has {done} steps behind it, trainer.max_steps={max_steps}")
        if directory.status.get("status") != "finished":
            _finish_late(directory, done)
        _say(f"{config.run_dir} is finished: {done} of {max_steps} steps are done. To go on, raise trainer.max_steps.")
        return 0
    # Lightning starts this machine's other processes with the same words: they must come to this directory.
    os.environ["MATMILL_RUN_DIR"] = config.run_dir

    boundary = assemble.build_boundary(config, directory.checkpoints.path)
    trainer = assemble.build_trainer(config, max_steps, boundary)
    data.max_steps = max_steps
    if main_process:
        directory.start(config, done)
        if hasattr(data, "save"):
            data.save(directory.path / "data")
        _say(f"{config.run_dir}: " + (f"continues after step {done} of {max_steps}" if done else f"{max_steps} steps"))
    boundary.take_signals(trainer)
    try:
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as leaving:
        if main_process:
            status = "preempted" if isinstance(leaving, Preempted) else "interrupted"
            summary.write(directory.path, trainer, module, config, status)
            directory.set_status(status, trainer.global_step, exit_code=leaving.code)
            saved = " and saved" if status == "preempted" else ", without saving"
            _say(f"stopped by a signal after step {trainer.global_step}{saved}; the same command goes on")
        raise
    if main_process:
        summary.write(directory.path, trainer, module, config, "finished")
        directory.set_status("finished", trainer.global_step)
        summary.show(directory.path, Path(config.run_dir))
    return 0


def _finish_late(directory: RunDirectory, steps: int) -> None:
    """Evaluate and close a run that was stopped between its last step and its summary."""
    from matmill import held_out
    from matmill.evaluate import evaluate

    loaded = held_out.load(str(directory.path), "latest")
    summary.write_late(directory.path, steps, loaded.checkpoint, evaluate(loaded.module, loaded.data))
    directory.set_status("finished", steps)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
