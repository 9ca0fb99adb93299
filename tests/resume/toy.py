"""A small network and data set with everything that can break a resume: dropout, augmentation, ragged samples."""

import functools
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from callbacks.anomalies import StopOnNonFinite
from callbacks.boundary import Boundary
from datamodules.base import WindowDataModule
from datamodules.order import AUGMENT, mix
from lightning_modules.base import WindowModule
from lightning_modules.schedules import Plateau, WarmupCosine
from strategies import DataParallel, SingleDevice
from strategies.async_writer import AsyncWriter


class ToySet:
    """`count` sequences of 12 tokens with 4 to 11 counted targets; augmentation rolls each by a random amount."""

    def __init__(self, count: int, seed: int, augment: bool) -> None:
        self.count, self.seed, self.augment = count, seed, augment

    def __len__(self) -> int:
        return self.count

    def sample(self, epoch: int, index: int) -> dict[str, Any]:
        tokens = torch.randint(0, 32, (13,), generator=torch.Generator().manual_seed(mix(self.seed, 2, index)))
        if self.augment:
            tokens = torch.roll(tokens, random.Random(mix(self.seed, AUGMENT, epoch, index)).randrange(13))
        targets = tokens[1:].clone()
        targets[4 + index % 8 :] = -100
        return {"tokens": tokens[:-1], "targets": targets, "id": index}

    def collate(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {k: torch.stack([s[k] for s in samples]) for k in ("tokens", "targets")}
        return batch | {"units": int((batch["targets"] != -100).sum()), "ids": [s["id"] for s in samples]}

    def blank(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"targets": torch.full_like(batch["targets"], -100), "units": 0, "ids": []}


class ToyData(WindowDataModule):
    """53 training and 11 held-out sequences."""

    fingerprint = "toy"

    def prepare(self) -> None:
        self.train_set, self.val_set = ToySet(53, 7, True), ToySet(11, 8, False)


class ToyNetwork(nn.Module):
    """Embedding, dropout, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dropout, self.head = nn.Embedding(32, 16), nn.Dropout(0.1), nn.Linear(16, 32)

    def init_weights(self) -> None:
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.dropout(self.embedding(tokens)))


class ToyModule(WindowModule):
    """Next-token loss of the toy network."""

    network_class = ToyNetwork

    def network_loss(self, network: nn.Module, batch: Any) -> Tensor:
        logits = network(batch["tokens"]).flatten(0, 1)
        return F.cross_entropy(logits, batch["targets"].flatten(), ignore_index=-100, reduction="sum")


class Diary(L.Callback):
    """Writes down everything that must be equal, and may kill the process at a step or inside an evaluation."""

    def __init__(self, path: Path, act: Callable[[int, str], None]) -> None:
        self.path, self.act = path, act

    def write(self, step: int, *words: Any) -> None:
        with self.path.open("a") as file:
            file.write(" ".join(str(word) for word in (step, *words)) + "\n")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss, lr = float(pl_module.step_metrics["train/loss"]), pl_module.step_metrics["train/learning_rate"]
        ids = [i for micro in batch for i in micro["ids"]]
        augmented = sum(int(micro["tokens"].sum()) * (n + 1) for n, micro in enumerate(batch))
        weights = sum(float(p.double().sum()) for p in pl_module.parameters())
        self.write(trainer.global_step, "train", loss.hex(), lr.hex(), ids, augmented, weights.hex())
        self.act(trainer.global_step, "step")

    def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
        self.act(trainer.global_step, "evaluation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.write(trainer.global_step, "val", float(pl_module.val_metrics["val/loss"]).hex())


def train(
    directory: Path,
    *,
    steps: int = 12,
    workers: int = 0,
    micro: int = 4,
    plateau: bool = False,
    seed: int = 7,
    save_every: int = 2,
    asynchronous: bool = False,
    devices: int = 1,
    act: Callable[[int, str], None] = lambda step, where: None,
) -> None:
    """Train the toy in `directory`, going on from its newest checkpoint.

    With several devices every process of a group calls it; the diary of the others lies beside that of the first.
    """
    torch.set_num_threads(1)
    directory.mkdir(parents=True, exist_ok=True)
    data = ToyData(global_batch_size=16, micro_batch_size=micro, num_workers=workers, seed=seed)
    data.prepare()
    data.max_steps = steps
    schedule = Plateau(factor=0.5, patience=0, threshold=0.5) if plateau else WarmupCosine(warmup_steps=5)
    optimizer = functools.partial(torch.optim.AdamW, lr=1e-2)
    module = ToyModule(optimizer=optimizer, schedule=schedule, seed=seed, gradient_clip_norm=1.0)
    strategy = SingleDevice() if devices == 1 else DataParallel()
    name = "diary" if devices == 1 else f"diary-{os.environ['LOCAL_RANK']}"
    boundary = Boundary(
        directory=str(directory / "checkpoints"),
        validate_every_steps=3,
        save_every_steps=save_every,
        writer=AsyncWriter() if asynchronous else None,
    )
    trainer = L.Trainer(
        accelerator="cpu", devices=devices, strategy=strategy, max_steps=steps, max_epochs=-1,
        val_check_interval=10**6, check_val_every_n_epoch=None, num_sanity_val_steps=0,
        use_distributed_sampler=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, logger=False,
        callbacks=[StopOnNonFinite(), Diary(directory / name, act), boundary],
    )  # fmt: skip
    boundary.take_signals(trainer)
    trainer.fit(module, datamodule=data, ckpt_path=boundary.folder.latest(), weights_only=True)


def in_child(function: Callable[[], None]) -> int:
    """Run in a forked process (torch is loaded there already); its exit status, or minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            function()
            status = 0
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def diary(directory: Path, name: str = "diary") -> dict[tuple[int, str], str]:
    """The last entry of each (step, kind): replayed steps must repeat what they were."""
    entries: dict[tuple[int, str], str] = {}
    for line in (directory / name).read_text().splitlines():
        step, kind, rest = line.split(" ", 2)
        entries[int(step), kind] = rest
    return entries
