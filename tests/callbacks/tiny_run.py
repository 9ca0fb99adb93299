"""A training run of milliseconds on a clock that is moved by hand, for the tests of callbacks."""

from collections.abc import Callable
from typing import Any

import lightning.pytorch as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from datamodules.base import WindowDataModule
from lightning_modules.base import WindowModule
from utilization.clock import PhaseClock

VOCAB, WIDTH, LENGTH = 16, 8, 4
FLOPS_PER_TOKEN = 6 * VOCAB * WIDTH  # the embedding is no matmul


class HandClock:
    """Nanoseconds that pass only when told to; as a callback it lends its phase clock to the others."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def wait(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


class ClockOwner(L.Callback):
    """Stands for the callback that owns the run's clock; it checkpoints for 100 s after the steps given."""

    def __init__(self, hand: HandClock, pause_after: tuple[int, ...] = ()) -> None:
        self.hand, self.pause_after = hand, pause_after
        self.clock = PhaseClock(hand)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if trainer.global_step in self.pause_after:
            with self.clock.phase("checkpoint"):
                self.hand.wait(100)


class Rows(L.Callback):
    """Asks a callback for its metrics at every `every`-th step, as the metrics log does."""

    def __init__(self, source: Any, every: int = 1) -> None:
        self.source, self.every = source, every
        self.rows: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if trainer.global_step % self.every == 0:
            self.rows.append(self.source.metrics(trainer, pl_module))


class TinyNetwork(nn.Module):
    """An embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def init_weights(self) -> None:
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens))


class TinyModule(WindowModule):
    """Takes a second per micro-batch on the hand clock; `then` runs at the end of every step."""

    network_class = TinyNetwork

    def __init__(self, hand: HandClock, then: Callable[[int], None] = lambda step: None) -> None:
        super().__init__(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
        self.hand, self.then = hand, then

    def network_loss(self, network: nn.Module, batch: Any) -> Tensor:
        logits = network(batch["tokens"]).flatten(0, 1)
        return F.cross_entropy(logits, batch["targets"].flatten(), reduction="sum", ignore_index=-100)

    def training_step(self, window: Any, batch_idx: int) -> None:
        super().training_step(window, batch_idx)
        self.hand.wait(len(window))
        self.then(self.trainer.global_step)


class TinyText:
    """Samples of `LENGTH` tokens, the first `real` of them counted; fetching one takes `fetch_s` seconds."""

    def __init__(self, hand: HandClock, size: int, real: int, fetch_s: float) -> None:
        self.hand, self.size, self.real, self.fetch_s = hand, size, real, fetch_s

    def __len__(self) -> int:
        return self.size

    def sample(self, epoch: int, index: int) -> dict[str, Any]:
        self.hand.wait(self.fetch_s)
        tokens = (torch.arange(LENGTH) + index) % VOCAB
        targets = torch.where(torch.arange(LENGTH) < self.real, tokens, -100)
        return {"tokens": tokens, "targets": targets}

    def collate(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
        return batch | {"units": self.real * len(samples)}

    def blank(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"targets": torch.full_like(batch["targets"], -100), "units": 0}


def tiny_data(hand: HandClock, batch: int, micro: int, real: int = LENGTH, fetch_s: float = 0.0, size: int = 64) -> Any:
    data = WindowDataModule(global_batch_size=batch, micro_batch_size=micro)
    data.train_set = TinyText(hand, size, real, fetch_s)
    data.fingerprint = "tiny"
    data.max_steps = 10**6
    return data


def tiny_trainer(callbacks: list[L.Callback], max_steps: int, **options: Any) -> L.Trainer:
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "limit_val_batches": 0,
    }
    return L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=-1,
        max_steps=max_steps,
        callbacks=callbacks,
        **quiet | options,
    )
