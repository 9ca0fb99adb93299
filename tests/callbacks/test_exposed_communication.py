"""Exposed communication of real runs on two processes, and how often it may be sampled."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callbacks.exposed_communication import FIRST_STEP, ExposedCommunication
from tests.gloo import in_group

SLEEP_S = 0.5


def run(folder: Path, name: str, budget: float, sleeping_rank: int | None, strategy: str) -> dict[str, Any]:
    """Eight steps on two devices; one of them may come late to every backward pass."""
    import torch.distributed as dist

    from callbacks.communication import Communication
    from callbacks.time_parts import TimeParts
    from matmill import assemble
    from matmill.compose import compose
    from tests.callbacks.tiny_run import Rows

    words = ["experiment=parity", "precision=fp32", f"strategy={strategy}", "devices=2", "trainer.max_steps=8"]
    config = compose("train", [*words, f"run_dir={folder / name}"])
    config.callbacks = config.logger = None
    data = assemble.build_data(config)
    module: Any = assemble.build_module(config)
    boundary = assemble.build_boundary(config, folder / name / "checkpoints")
    boundary._evaluate = lambda trainer: None  # type: ignore[method-assign]
    trainer = assemble.build_trainer(config, 8, boundary)
    data.max_steps = 8
    if dist.get_rank() == sleeping_rank:
        update = module.manual_backward

        def late(*args: Any, **kwargs: Any) -> None:
            time.sleep(SLEEP_S if trainer.global_step >= FIRST_STEP - 1 else 0.0)
            update(*args, **kwargs)

        module.manual_backward = late
    sampler, parts, counter = ExposedCommunication(budget=budget), TimeParts(), Communication()
    rows, sampled = Rows(parts), Rows(sampler)
    trainer.callbacks[:0] = [sampler, parts, counter, rows, sampled]  # type: ignore[attr-defined]
    trainer.fit(module, datamodule=data, weights_only=True)
    return {
        "rows": rows.rows,
        "sampled": sampled.rows,
        "summary": sampler.summary(trainer, module) | parts.summary(trainer, module),
        "counted": counter.bytes_per_step,
    }


def runs(folder: Path) -> dict[str, Any]:
    return {
        "late": run(folder, "late", 1e9, 1, "ddp"),
        "even": run(folder, "even", 1e9, None, "fsdp"),
        "never": run(folder, "never", 1e-9, None, "ddp"),
    }


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_group(2, runs, tmp_path_factory.mktemp("runs"))


def test_waiting_for_a_late_device_is_exposed_communication(ranks: Any) -> None:
    """The first device's collective is in flight while the second sleeps; the second itself waits for nobody.

    The first device needs milliseconds for what the second sleeps half a second before: it waits most of that time.
    """
    waiting, sleeping = (found["late"]["summary"]["communication_exposed_fraction"] for found in ranks)
    assert waiting > 0.5
    assert sleeping < waiting
    assert ranks[0]["late"]["summary"]["time_parts"]["communication"] > SLEEP_S


def test_until_a_sample_exists_nothing_is_known(ranks: Any) -> None:
    """No part of a row before the first sample, and null in the summary of a run that had none: not zero."""
    even, never = ranks[0]["even"], ranks[0]["never"]
    assert all("time/communication_s" not in row for row in even["rows"][: FIRST_STEP - 1])
    assert all("time/communication_s" in row for row in even["rows"][FIRST_STEP:])
    assert 0 < even["summary"]["communication_exposed_fraction"] <= 1
    assert even["summary"]["communication_samples"] == len(even["rows"]) - FIRST_STEP + 1
    assert never["summary"]["communication_exposed_fraction"] is None
    assert never["summary"]["communication_samples"] == 0
    assert never["summary"]["time_parts"]["communication"] is None


def test_bytes_are_counted_as_without_samples(ranks: Any) -> None:
    """The step that the byte counter looks at is not profiled."""
    assert ranks[0]["late"]["counted"] == ranks[0]["never"]["counted"] > 0
    for found in ranks[0].values():
        assert sum(row["time/window_s"] for row in found["rows"]) > 0


def test_samples_keep_to_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: at three thousandths, samples of a second come no sooner than every 333 s of training."""
    import torch

    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    sampler = ExposedCommunication()
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cpu")))
    sampler.on_train_start(trainer, None)  # type: ignore[arg-type]
    taken = []
    for second in range(1, 2000):
        now[0] = float(second)
        if sampler._affordable(trainer):
            sampler.samples.append(0.5)
            sampler._cost += 1.0
            taken.append(second)
            assert len(taken) == 1 or sampler._cost <= 0.003 * second
    assert taken[:3] == [67, 667, 1000]  # the first by what is expected of it: 0.2 s


def test_a_single_device_samples_nothing() -> None:
    """Nothing to expose."""
    trainer: Any = SimpleNamespace(world_size=1)
    sampler = ExposedCommunication(budget=1e9)
    assert sampler.metrics(trainer, None) == {}  # type: ignore[arg-type]
    assert sampler.summary(trainer, None) == {}  # type: ignore[arg-type]
    assert not sampler._due
