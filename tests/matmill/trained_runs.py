"""Tiny trained runs, made by the command line in about a second each."""

from pathlib import Path

from PIL import Image

from tests.matmill.command import TINY, run


def text_run(folder: Path, *words: str) -> Path:
    """A transformer after four steps on forty short texts."""
    return _train(folder, "data=text", f"data.path={write_texts(folder)}", *TINY, *words)


def write_texts(folder: Path) -> Path:
    """Forty short texts to learn from, in a directory of their own."""
    texts = folder / "texts"
    texts.mkdir()
    for number in range(40):
        (texts / f"{number}.txt").write_text(f"Document {number}: the quick brown fox {number * number} jumps.\n" * 8)
    return texts


def image_run(folder: Path, *words: str) -> Path:
    """A small AlexNet after six steps on two classes of images, dark and light."""
    for split, count in (("train", 24), ("val", 8)):
        for name, shade in (("dark", 40), ("light", 200)):
            directory = folder / "images" / split / name
            directory.mkdir(parents=True)
            for number in range(count):
                Image.new("L", (32, 32), shade + number).save(directory / f"{number}.png")
    return _train(
        folder,
        "experiment=alexnet_mnist",
        f"data.path={folder / 'images'}",
        "data.flip=true",
        "data.resize_size=32",
        "data.global_batch_size=16",
        "data.micro_batch_size=8",
        "hardware.peak_flops=1e11",
        "trainer.max_steps=6",
        "trainer.validate_every_steps=6",
        *words,
    )


def _train(folder: Path, *words: str) -> Path:
    directory = folder / "a_run"
    result = run(folder, "train", f"run_dir={directory}", f"cache_dir={folder / 'cache'}", "logger=csv", *words)
    assert result.status == 0, result.err
    return directory
