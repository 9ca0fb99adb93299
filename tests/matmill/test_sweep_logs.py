"""A sweep's trials side by side in TensorBoard."""

from pathlib import Path

from matmill.compose import compose
from matmill.targets import build


def test_tensorboard_shows_every_trial(tmp_path: Path) -> None:
    """`tensorboard --logdir SWEEP`: a curve for each trial, by its number."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    for number in range(2):
        logger = build(compose("train", ["logger=tensorboard", f"run_dir={tmp_path}/{number}"]).logger.tensorboard, [])
        logger.log_metrics({"val/loss": 1.0 + number}, step=3)
        logger.finalize("success")
    shown = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    assert {name: run["scalars"] for name, run in shown.Runs().items()} == {
        "0/tensorboard": ["val/loss"], "1/tensorboard": ["val/loss"],
    }  # fmt: skip
