"""Several processes that want the same cache entry at once."""

import threading
from pathlib import Path

from datamodules.exclusive import exclusive
from datamodules.text.shards import SPLITS, obtain_shards


def test_one_builds_and_the_others_wait(tmp_path):
    """Of four that ask at once (file locks are per opened file, so threads do) one makes the entry, four have it."""
    made, got = [], []
    ready = threading.Barrier(4)

    def build(directory: Path) -> None:
        made.append(directory)
        for split in SPLITS:
            (directory / f"{split}.bin").write_bytes(b"\0\0")
        (directory / "tokenizer.json").write_text("{}")
        (directory / "data.json").write_text('{"dtype": "<u2", "train_tokens": 1, "val_tokens": 1}')

    def ask() -> None:
        ready.wait()
        got.append(obtain_shards(tmp_path / "cache" / "entry", build).directory)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [tmp_path / "cache" / "entry"] * 4
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["entry"]


def test_where_no_lock_can_be_had_all_go_on(tmp_path):
    """A place that cannot be written is no reason to stop: the entry may be there already."""
    (tmp_path / "file").write_text("")
    with exclusive(tmp_path / "file" / "entry"):
        pass


def test_a_failure_inside_frees_the_entry(tmp_path):
    """The next one to ask does not wait for ever."""
    try:
        with exclusive(tmp_path / "entry"):
            raise RuntimeError
    except RuntimeError:
        pass
    with exclusive(tmp_path / "entry"):
        assert [path.name for path in tmp_path.iterdir()] == [".entry.lock"]
    assert not list(tmp_path.iterdir())
