"""Base of matmill's data modules: one loader item is the whole window of micro-batches of one optimizer step."""

from pathlib import Path
from typing import Annotated, Any, Protocol, cast

import lightning.pytorch as L
from annotated_types import Ge, Gt
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from datamodules.order import MicroBatchKey, SampleOrder, WindowSampler

MicroBatch = dict[str, Any]
"""Tensors of one forward pass, with the integers `units`, `step` and `micro` (and `bytes` for text)."""


class SampleDataset(Protocol):
    """What a data module's `train_set` and `val_set` offer."""

    def __len__(self) -> int: ...

    def sample(self, epoch: int, index: int) -> dict[str, Any]:
        """One sample; augmentation is a function of (seed, epoch, index) only."""
        ...

    def collate(self, samples: list[dict[str, Any]]) -> MicroBatch:
        """Stack samples; adds `units`, the number of predictions that count in the loss."""
        ...

    def blank(self, batch: MicroBatch) -> MicroBatch:
        """The same batch with every target ignored (-100) and `units` 0."""
        ...


class WindowDataset(Dataset[MicroBatch]):
    """Turns one device's share of a step into the list of its micro-batches."""

    def __init__(self, samples: SampleDataset) -> None:
        self.samples = samples

    def __getitem__(self, key: MicroBatchKey) -> MicroBatch:
        step, number, items = key
        batch = self.samples.collate([self.samples.sample(epoch, index) for epoch, index in items or [(0, 0)]])
        if items is None:
            batch = self.samples.blank(batch)
        return batch | {"step": step, "micro": number}


def as_window(micro_batches: list[MicroBatch]) -> list[MicroBatch]:
    """Collate function of the loaders: the list of micro-batches is the batch (a module-level name, so it pickles)."""
    return micro_batches


class WindowDataModule(L.LightningDataModule):
    """Serves windows in the order of `SampleOrder`; subclasses say what the samples are.

    A subclass implements `prepare` (idempotent; reads, checks and caches the data, sets `train_set`, `val_set` and
    `fingerprint`), `facts` and `save`. The position to resume from is the Trainer's global step, so the only state
    is what must not change: it is compared on resume.
    """

    train_set: SampleDataset
    val_set: SampleDataset
    fingerprint: str

    def __init__(
        self,
        *,
        global_batch_size: Annotated[int, Gt(0)],
        micro_batch_size: Annotated[int, Gt(0)],
        eval_micro_batch_size: Annotated[int, Gt(0)] | None = None,
        num_workers: Annotated[int, Ge(0)] = 0,
        seed: Annotated[int, Ge(0)] = 0,
    ) -> None:
        """`global_batch_size`: samples per optimizer step over all devices; `micro_batch_size`: per forward pass."""
        super().__init__()
        if micro_batch_size > global_batch_size:
            raise ValueError(
                f"data.micro_batch_size={micro_batch_size} is larger than data.global_batch_size={global_batch_size}"
            )
        self.global_batch_size = global_batch_size
        self.micro_batch_size = micro_batch_size
        self.eval_micro_batch_size = eval_micro_batch_size or micro_batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.max_steps = 0

    def prepare(self) -> None:
        """Read, check and cache the data; every error in the data's files is raised here, before a model is built."""
        raise NotImplementedError(f"{type(self).__name__} does not implement prepare()")

    @property
    def facts(self) -> dict[str, int]:
        """Sizes that the network takes from the data, such as `vocab_size` or `num_classes`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement facts")

    def save(self, directory: Path) -> None:
        """Write into `directory` what running the trained model needs (tokenizer, class names, normalisation)."""
        raise NotImplementedError(f"{type(self).__name__} does not implement save()")

    def outline(self) -> MicroBatch:
        """The shapes of a training micro-batch, its tensors on the meta device.

        From real samples; a subclass that knows them from its settings alone spares reading the data.
        """
        self.prepare()
        batch = self.train_set.collate([self.train_set.sample(0, 0)] * self.micro_batch_size)
        return {name: value.to("meta") if isinstance(value, Tensor) else value for name, value in batch.items()}

    @property
    def known_facts(self) -> dict[str, int]:
        """Those of the `facts` that the settings tell without reading the data."""
        return {}

    @property
    def order(self) -> SampleOrder:
        """The order of the training samples.

        Raises:
            ValueError: there are fewer samples than one global batch, so no full step could ever be made.
        """
        if len(self.train_set) < self.global_batch_size:
            raise ValueError(
                f"the training data has {len(self.train_set)} samples, fewer than one batch: "
                f"lower data.global_batch_size={self.global_batch_size} or bring more data"
            )
        return SampleOrder(len(self.train_set), self.global_batch_size, self.micro_batch_size, self.seed)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one pass over the training samples."""
        return self.order.steps_per_epoch

    def train_dataloader(self) -> DataLoader[list[MicroBatch]]:
        """Windows from the Trainer's global step (already restored when Lightning asks) up to the last step."""
        trainer = self.trainer
        assert trainer is not None
        sampler = WindowSampler(self.order, trainer.global_step, self.max_steps, *_share(trainer))
        return DataLoader(
            cast("Dataset[list[MicroBatch]]", WindowDataset(self.train_set)),
            batch_sampler=sampler,
            collate_fn=as_window,
            num_workers=self.num_workers,
            pin_memory=trainer.strategy.root_device.type == "cuda",
            persistent_workers=self.num_workers > 0,
        )

    def val_dataloader(self) -> DataLoader[list[MicroBatch]]:
        """Every held-out sample once, one micro-batch per item, shared out over the devices."""
        trainer = self.trainer
        assert trainer is not None
        micro = self.eval_micro_batch_size
        order = SampleOrder(len(self.val_set), max(len(self.val_set), micro), micro, self.seed, shuffle=False)
        share = order.share(0, *_share(trainer))
        return DataLoader(
            cast("Dataset[list[MicroBatch]]", WindowDataset(self.val_set)),
            batch_sampler=[[key] for key in share],
            collate_fn=as_window,
            num_workers=self.num_workers,
        )

    def state_dict(self) -> dict[str, Any]:
        """What decides which sample comes at which step; the position itself is the Trainer's global step."""
        return {
            "samples": len(self.train_set),
            "global_batch_size": self.global_batch_size,
            "seed": self.seed,
            "fingerprint": self.fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Refuse to resume on other data: the order would silently differ.

        Raises:
            ValueError: a setting that decides the order differs from the checkpoint's.
        """
        for name, now in self.state_dict().items():
            if state[name] != now:
                raise ValueError(
                    f"cannot resume: data {name} is {now} but was {state[name]} in the checkpoint; "
                    "use the former data settings or another run_dir"
                )


def _share(trainer: L.Trainer) -> tuple[int, int]:
    """Which share of the data this process takes, of how many: not one for each process if some split tensors."""
    strategy = trainer.strategy
    rank = getattr(strategy, "data_parallel_rank", trainer.global_rank)
    return rank, getattr(strategy, "data_parallel_size", trainer.world_size)
