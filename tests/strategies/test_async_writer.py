"""A checkpoint written in the background is the state at the moment of the save, complete or absent, or an error."""

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from strategies import checkpoint as ckpt
from strategies import checkpoint_files as files
from strategies.async_writer import AsyncWriter, Staging
from tests.gloo import in_group


@contextmanager
def held(patch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Background writes stop before their rename until the event is set, at the latest at the end."""
    go, complete = threading.Event(), files._complete

    def waiting(*arguments: Any) -> None:
        assert go.wait(60)
        complete(*arguments)

    patch.setattr(files, "_complete", waiting)
    try:
        yield go
    finally:
        go.set()


def stored(directory: Path, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Tensors t0, t1, ... of a checkpoint, in the memory of tensors like those given."""
    wanted = {f"t{number}": torch.zeros_like(tensor) for number, tensor in enumerate(tensors)}
    dcp.load(wanted, storage_reader=ckpt.TensorReader(directory), no_dist=True)
    return list(wanted.values())


def test_the_state_of_the_moment_is_saved_and_visible_only_when_complete(tmp_path, monkeypatch):
    """What training changes after `write` is not in the checkpoint, which appears when the last byte is on the disk."""
    tensors = [torch.arange(6.0), torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor(7)]
    before = [tensor.clone() for tensor in tensors]
    meta: dict[str, Any] = {"global_step": 1, "rates": [0.5]}
    events = []
    writer = AsyncWriter()
    with held(monkeypatch) as go:
        named = {f"t{number}": tensor for number, tensor in enumerate(tensors)}
        writer.write(tmp_path / "step-1", named, meta, then=lambda: events.append((tmp_path / "step-1").is_dir()))
        for tensor in tensors:
            tensor.zero_()
        meta["rates"].append(0.25)
        assert writer.busy
        assert not (tmp_path / "step-1").exists()
        go.set()
    assert writer.wait() > 0
    assert not writer.pending
    assert events == [True]
    ckpt.verify(tmp_path / "step-1")
    assert ckpt.load_meta(tmp_path / "step-1") == {"global_step": 1, "rates": [0.5]}
    assert all(torch.equal(a, b) for a, b in zip(stored(tmp_path / "step-1", *tensors), before, strict=True))


def test_the_files_are_those_of_a_synchronous_save(tmp_path):
    """Both ways write the same files with the same bytes of tensors."""
    tensors = {"t0": torch.arange(6.0)}
    ckpt.save(tmp_path / "a", tensors, {"global_step": 1})
    writer = AsyncWriter()
    writer.write(tmp_path / "b", tensors, {"global_step": 1})
    writer.wait()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in (tmp_path / "b").iterdir())
    assert (tmp_path / "a" / "__0_0.distcp").read_bytes() == (tmp_path / "b" / "__0_0.distcp").read_bytes()


def test_one_write_at_a_time_and_never_over_another(tmp_path, monkeypatch):
    """A second write before `wait` is refused, and so is a directory that exists."""
    writer = AsyncWriter()
    with held(monkeypatch):
        writer.write(tmp_path / "step-1", {"t0": torch.ones(2)}, {})
        with pytest.raises(RuntimeError, match="one checkpoint at a time"):
            writer.write(tmp_path / "step-2", {"t0": torch.ones(2)}, {})
    writer.wait()
    with pytest.raises(FileExistsError, match="step-1"):
        writer.write(tmp_path / "step-1", {"t0": torch.ones(2)}, {})


@pytest.mark.parametrize(
    "where",
    [
        "strategies.checkpoint_files._make",
        "torch.distributed.checkpoint.filesystem._write_item",
        "strategies.checkpoint_files._write_durably",
    ],
)
def test_a_full_disk_is_raised_by_wait_and_the_next_save_can_work(tmp_path, monkeypatch, where):
    """Wherever the disk is full, the error says what and why, nothing appears, and the writer is ready again."""

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    writer = AsyncWriter()
    with monkeypatch.context() as patch:
        patch.setattr(where, full)
        writer.write(tmp_path / "step-1", {"t0": torch.ones(2)}, {})
        with pytest.raises(OSError, match=r"cannot write checkpoint .*step-1: No space left on device"):
            writer.wait()
    assert not (tmp_path / "step-1").exists()
    writer.write(tmp_path / "step-1", {"t0": torch.ones(2)}, {})
    writer.wait()
    ckpt.verify(tmp_path / "step-1")


def test_staging_keeps_its_memory():
    """The second copy of a state takes no new memory; tensors of another shape or type get theirs."""
    staging = Staging()
    tensors = {"a": torch.ones(3, 4), "b": torch.ones(5), "slice": torch.ones(6, 6)[:, 1:3]}
    first = staging.copy(tensors)
    addresses = {name: tensor.data_ptr() for name, tensor in first.items()}
    assert all(tensor.data_ptr() != tensors[name].data_ptr() for name, tensor in first.items())
    # A view of a larger storage would make the writer copy once more.
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in first.values())
    tensors["a"].mul_(2)
    tensors["b"] = torch.ones(7, dtype=torch.bfloat16)
    second = staging.copy(tensors)
    assert {name for name in second if second[name].data_ptr() == addresses[name]} == {"a", "slice"}
    assert all(torch.equal(second[name], tensors[name]) for name in tensors)
    del tensors["b"]
    assert set(staging.copy(tensors)) == set(staging._buffers) == {"a", "slice"}


def two_processes(folder: Path) -> dict[str, Any]:
    """Cases of a group of two: what each process saw."""
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(15.0).reshape(3, 5)
    shards = {"t0": distribute_tensor(whole, mesh, [Shard(0)]), "t1": distribute_tensor(whole[:1], mesh, [Shard(0)])}
    writer = AsyncWriter()
    writer.open()
    seen: dict[str, Any] = {"empty": shards["t1"].to_local().numel()}

    def together() -> None:  # the training's own collectives, while the threads use theirs
        total = torch.ones(())
        dist.all_reduce(total)
        assert total == 2

    # The second process writes slowly: the first is not done before it.
    late, checksums = threading.Event(), files._checksums
    if rank == 1:
        files._checksums = lambda paths: (late.wait(60), checksums(paths))[1]
    writer.write(folder / "step-1", shards, {"global_step": 1})
    for tensor in shards.values():
        tensor.to_local().zero_()
    for _ in range(20):
        together()
    dist.barrier()
    seen["busy while the other writes"] = writer.busy, (folder / "step-1").exists()
    dist.barrier()
    late.set()
    writer.wait()
    seen["complete after"] = (folder / "step-1").exists()
    files._checksums = checksums

    # The disk of the second process is full: both learn of it, neither hangs.
    if rank == 1:
        files._checksums = lambda paths: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))
    writer.write(folder / "step-2", shards, {"global_step": 2})
    together()
    try:
        writer.wait()
    except OSError as error:
        seen["error"] = str(error)
    files._checksums = checksums
    return seen


def test_two_processes_finish_together_and_learn_of_each_others_failure(tmp_path):
    """Sharded tensors, one shard empty; threads of different speed beside collectives of the training; a full disk."""
    for rank, seen in enumerate(in_group(2, two_processes, tmp_path)):
        assert seen["empty"] == (5, 0)[rank]
        assert seen["busy while the other writes"] == (True, False)
        assert seen["complete after"]
        assert "step-2: No space left on device" in seen["error"]
    ckpt.verify(tmp_path / "step-1")
    whole = torch.arange(15.0).reshape(3, 5)
    first, second = stored(tmp_path / "step-1", whole, whole[:1])
    assert torch.equal(first, whole)
    assert torch.equal(second, whole[:1])
    assert not (tmp_path / "step-2").exists()
