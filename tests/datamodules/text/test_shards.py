"""Token shards: complete or absent, shared, rebuilt when damaged."""

import multiprocessing
import os
import pickle
import signal
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from datamodules.text import shards
from datamodules.text.settings import TextSettings
from datamodules.text.shards import Shards, TokenStream, obtain_shards, open_shards, smallest_dtype
from datamodules.text.tokenise import tokenise

SETTINGS = TextSettings("text", "bytes", 257, "<|endoftext|>", 0.5)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A small corpus."""
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f'{{"text": "document {i}"}}\n' for i in range(8)))
    return file


def obtain(text: Path, target: Path) -> Shards:
    """Shards of the corpus at `target`."""
    return obtain_shards(target, lambda directory: tokenise([text], SETTINGS, directory))


@pytest.mark.parametrize(
    ("vocab_size", "dtype"),
    [(256, "<u1"), (257, "<u2"), (65536, "<u2"), (65537, "<u4"), (128256, "<u4")],
)
def test_dtype_is_the_narrowest_that_holds_every_id(vocab_size: int, dtype: str) -> None:
    """The highest id, vocab_size - 1, just fits."""
    assert smallest_dtype(vocab_size) == dtype
    assert np.iinfo(dtype).max >= vocab_size - 1


def test_shards_hold_every_document_behind_a_separator(text: Path, tmp_path: Path) -> None:
    """The two streams together are the corpus, and the counts in data.json are theirs."""
    made = obtain(text, tmp_path / "cache" / "key")
    found = []
    for split in ("train", "val"):
        tokens = made.stream(split).tokens
        assert tokens.dtype == np.dtype("<u2")
        assert (tokens < made.facts["vocab_size"]).all()
        assert tokens[0] == 256
        starts = np.nonzero(tokens == 256)[0]
        documents = [bytes(part[1:].astype("u1")) for part in np.split(tokens, starts[1:])]
        assert made.facts[f"{split}_documents"] == len(documents)
        assert made.facts[f"{split}_tokens"] == len(tokens) == len(made.stream(split))
        assert made.facts[f"{split}_bytes"] == sum(map(len, documents))
        found += documents
    assert sorted(found) == [b"document %d" % i for i in range(8)]


def test_finished_shards_are_not_built_again(text: Path, tmp_path: Path) -> None:
    """The second start opens what is there."""
    obtain(text, tmp_path / "cache" / "key")

    def build(directory: Path) -> None:
        raise AssertionError("built again")

    assert obtain_shards(tmp_path / "cache" / "key", build).facts["kind"] == "text"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_while_building_leaves_nothing(text: Path, tmp_path: Path, error: type[BaseException]) -> None:
    """Neither half shards nor a temporary directory; the next call builds."""

    def build(directory: Path) -> None:
        (directory / "train.bin").write_bytes(b"half")
        raise error

    with pytest.raises(error):
        obtain_shards(tmp_path / "cache" / "key", build)
    assert list((tmp_path / "cache").iterdir()) == []
    assert obtain(text, tmp_path / "cache" / "key").facts["train_tokens"] > 0


def test_a_killed_process_leaves_nothing_usable(text: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle of writing: the next call builds, and old remains are removed after a day."""
    target = tmp_path / "cache" / "key"

    def build(directory: Path) -> None:
        (directory / "train.bin").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=obtain_shards, args=(target, build))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not target.exists()
    (remains,) = (path for path in target.parent.iterdir() if path.is_dir())
    assert open_shards(remains) is None
    obtain(text, target)
    assert remains.exists()  # it could belong to a process that is still at work
    old = time.time() - shards.ABANDONED_S - 60
    for path in (remains / "train.bin", remains):
        os.utime(path, (old, old))
    obtain(text, target.with_name("other"))
    assert not remains.exists()


@pytest.mark.parametrize("damage", ["shorter", "missing", "broken"])
def test_damaged_shards_are_rebuilt(text: Path, tmp_path: Path, damage: str) -> None:
    """Files cut short or removed by hand are noticed and replaced."""
    target = tmp_path / "cache" / "key"
    made = obtain(text, target)
    whole = (target / "train.bin").read_bytes()
    if damage == "shorter":
        (target / "train.bin").write_bytes(whole[:-2])
    elif damage == "missing":
        (target / "tokenizer.json").unlink()
    else:
        (target / "data.json").write_text('{"kind":')
    assert open_shards(target) is None
    assert obtain(text, target).facts == made.facts
    assert (target / "train.bin").read_bytes() == whole
    assert [path.name for path in target.parent.iterdir()] == ["key"]


def test_processes_that_build_at_once_share_the_first_result(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are no locks all build and meet before they rename: one wins, the others use its files."""
    monkeypatch.setattr(shards, "exclusive", lambda _: nullcontext())
    target = tmp_path / "cache" / "key"
    meet = threading.Barrier(4)
    results: list[Shards] = []

    def build(directory: Path) -> None:
        tokenise([text], SETTINGS, directory)
        meet.wait(timeout=60)

    threads = [threading.Thread(target=lambda: results.append(obtain_shards(target, build))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert [path.name for path in target.parent.iterdir()] == ["key"]


def test_a_pickled_stream_carries_no_tokens(tmp_path: Path) -> None:
    """Loader workers that are spawned must map the file, not receive it."""
    (tmp_path / "train.bin").write_bytes(np.arange(50_000, dtype="<u2").tobytes())
    stream = TokenStream(tmp_path / "train.bin", "<u2")
    assert stream.tokens[-1] == 49_999
    raw = pickle.dumps(stream)
    assert len(raw) < 1000
    assert pickle.loads(raw).tokens[-1] == 49_999
