"""Dynamic loss scaling: overflows are skipped, the scale adapts, and a hopeless run ends."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import pytest
import torch
from lightning.pytorch.plugins import Precision
from torch import nn

from callbacks.anomalies import StopOnNonFinite
from lightning_modules.schedules import WarmupCosine
from precision import FP16Mixed
from precision.fp16 import HOPELESS_STEPS
from strategies import SingleDevice
from tests.resume.toy import ToyData, ToyModule

GOOD, BAD = torch.tensor(1.0), torch.tensor(float("inf"))


def judged(plugin: FP16Mixed, *norms: torch.Tensor) -> list[tuple[bool, float]]:
    """Whether each step was skipped, and the scale after it."""
    seen = []
    for norm in norms:
        plugin.judge(norm)
        seen.append((plugin.skipped, plugin.scale))
    return seen


def test_overflow_halves_and_good_steps_in_a_row_double():
    """Micikevicius et al. 2018, section 3.2; a skipped step breaks the row."""
    plugin = FP16Mixed(initial_scale=8.0, growth_interval=2)
    assert judged(plugin, GOOD, BAD, GOOD, GOOD, GOOD, GOOD) == [
        (False, 8.0),
        (True, 4.0),
        (False, 4.0),
        (False, 8.0),
        (False, 8.0),
        (False, 16.0),
    ]
    assert judged(plugin, torch.tensor(float("nan"))) == [(True, 8.0)]
    assert plugin.metrics() == {"train/loss_scale": 8.0, "train/skipped_steps": 2.0}


def test_the_smallest_scale_is_a_floor_and_ends_a_hopeless_run():
    """At the floor non-finite steps are skipped for a while, a good one starts the count anew, then the run ends."""
    plugin = FP16Mixed(initial_scale=2.0, minimum_scale=1.0)
    assert judged(plugin, BAD, BAD) == [(True, 1.0), (True, 1.0)]
    judged(plugin, GOOD, *[BAD] * (HOPELESS_STEPS - 1))
    with pytest.raises(ArithmeticError, match=r"not finite for 10 steps in a row.*bf16_mixed") as error:
        plugin.judge(BAD)
    assert "\n" not in str(error.value)


def test_a_resumed_run_goes_on_with_the_same_scale():
    """Every following decision is the same, whatever the state was saved in the middle of."""
    one = FP16Mixed(initial_scale=4.0, growth_interval=3)
    judged(one, BAD, GOOD, GOOD)
    other = FP16Mixed(growth_interval=3)
    other.load_state_dict(one.state_dict())
    rest = [GOOD, BAD, GOOD, BAD, *[BAD] * (HOPELESS_STEPS - 2)]
    assert judged(one, *rest) == judged(other, *rest)
    assert one.state_dict() == other.state_dict()


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"initial_scale": 3.0}, "initial_scale=3.0 is no power of two"),
        ({"minimum_scale": 0.3}, "minimum_scale=0.3 is no power of two"),
        ({"initial_scale": 1.0, "minimum_scale": 2.0}, "initial_scale=1.0 is below minimum_scale=2.0"),
    ],
)
def test_scales_that_would_round_are_refused(keys, line):
    """Powers of two only change exponents, so that a scale is taken out of the gradients exactly."""
    with pytest.raises(ValueError, match=line):
        FP16Mixed(**keys)


class Diary(L.Callback):
    """What each step left; makes the gradients of one step overflow on their way back."""

    def __init__(self, overflow_at: int | None) -> None:
        self.overflow_at = overflow_at
        self.rows: list[dict[str, Any]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        parameter = next(pl_module.parameters())
        self.handle = None
        if len(self.rows) == self.overflow_at:
            self.handle = parameter.register_hook(lambda gradient: gradient * float("inf"))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if self.handle is not None:
            self.handle.remove()
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        weights = sum(float(parameter.detach().double().sum()) for parameter in pl_module.parameters())
        metrics = {name: float(value) for name, value in getattr(pl_module, "step_metrics", {}).items()}
        self.rows.append({"rate": rate, "weights": weights, "step": trainer.global_step} | metrics)


def train(folder: Path, plugin: FP16Mixed, overflow_at: int | None = None) -> list[dict[str, Any]]:
    """Four steps of the toy network in float16 under a warm-up."""
    data = ToyData(global_batch_size=16, micro_batch_size=8, num_workers=0, seed=7)
    data.prepare()
    data.max_steps = 4
    optimizer = partial(torch.optim.AdamW, lr=1e-2)
    module = ToyModule(optimizer=optimizer, schedule=WarmupCosine(warmup_steps=3), seed=7, gradient_clip_norm=1.0)
    diary = Diary(overflow_at)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, strategy=SingleDevice(), plugins=[plugin], max_steps=4, max_epochs=-1,
        callbacks=[diary, StopOnNonFinite()], limit_val_batches=0, num_sanity_val_steps=0, logger=False,
        use_distributed_sampler=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    return diary.rows


def test_a_skipped_step_leaves_weights_and_schedule_alone_and_the_run_goes_on(tmp_path):
    """The step counts as one, but neither weights nor learning rate move, and it is not taken for a diverged run."""
    plugin = FP16Mixed()
    rows = train(tmp_path, plugin, overflow_at=1)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert rows[1]["weights"] == rows[0]["weights"]
    assert rows[1]["rate"] == rows[0]["rate"]
    assert rows[2]["weights"] != rows[1]["weights"]
    assert rows[2]["rate"] != rows[1]["rate"]
    assert plugin.metrics() == {"train/loss_scale": 2.0**15, "train/skipped_steps": 1.0}


def test_the_gradient_norm_does_not_know_the_scale(tmp_path):
    """Clipping sees unscaled gradients: their norm under scales 2^8 and 2^16 differs by float16's rounding at most.

    A product in float16 is off by 2^-11 of itself; numbers that are subnormal under the smaller scale, below 2^-14,
    lose more, but here they are few: 2^-9 leaves room for four roundings in a row.
    """
    small, large = (train(tmp_path, FP16Mixed(initial_scale=scale)) for scale in (2.0**8, 2.0**16))
    for one, other in zip(small, large, strict=True):
        assert one["train/gradient_norm"] == pytest.approx(other["train/gradient_norm"], rel=2**-9)


class Foreign(L.LightningModule):
    """A user's own module with automatic optimization, whose step never asks for unscaling."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).float().square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def test_automatic_optimization_is_scaled_and_skipped_too(tmp_path):
    """Its weights are those of a float32 run up to float16's rounding, and an overflow is skipped."""
    samples = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(samples), batch_size=4)

    def run(plugin: Any, overflow_at: int | None) -> tuple[list[dict[str, Any]], torch.Tensor]:
        torch.manual_seed(2)
        module, diary = Foreign(), Diary(overflow_at)
        trainer = L.Trainer(
            accelerator="cpu", devices=1, plugins=[plugin], max_steps=4, callbacks=[diary], logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module, loader)
        return diary.rows, module.layer.weight.detach()

    plain = run(Precision(), None)[1]
    _, scaled = run(FP16Mixed(initial_scale=2.0**8), None)  # small enough for gradients of about 1
    # Four steps, each with a forward and a backward product of 4 and 4 terms: at most 16 roundings of 2^-11.
    torch.testing.assert_close(scaled, plain, rtol=16 * 2**-11, atol=16 * 2**-11)
    plugin = FP16Mixed(initial_scale=2.0**8)
    rows, _ = run(plugin, 2)
    assert rows[2]["weights"] == rows[1]["weights"]
    assert rows[3]["weights"] != rows[2]["weights"]
    assert plugin.skipped_steps == 1
