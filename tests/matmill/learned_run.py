"""A transformer that has learned something, made by the command line in half a minute."""

from pathlib import Path

from tests.matmill.command import TINY, change, run


def learned_run(folder: Path) -> Path:
    """Two layers of 128 channels after 150 steps on the King James text, byte by byte.

    Its weights have the structure that tells methods of quantization apart, which random ones lack.
    """
    words = change(
        [*TINY, "schedule.warmup_steps=20"],
        "model.d_model=128",
        "data.sequence_length=64",
        "data.global_batch_size=32",
        "data.micro_batch_size=32",
        "trainer.max_steps=150",
        "trainer.log_every_steps=50",
        "optimizer.lr=4e-3",
    )
    directory = folder / "learned"
    result = run(folder, "train", f"run_dir={directory}", f"cache_dir={folder / 'cache'}", "logger=csv", *words)
    assert result.status == 0, result.err
    return directory
