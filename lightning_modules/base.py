"""Base of matmill's LightningModules: one Lightning batch is one optimizer step, however many micro-batches it has."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, ClassVar

import lightning.pytorch as L
import torch
import torch.distributed as dist
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from datamodules.order import DROPOUT, INIT, reseed
from lightning_modules.decay import decay_groups, scale_rates
from lightning_modules.optimizers.rounding import warn_of_lost_updates
from lightning_modules.schedules import Plateau, Schedule, scheduler

Window = list[dict[str, Any]]
"""The micro-batches of one device for one optimizer step."""


class WindowModule(L.LightningModule):
    """Trains a plain network with exact resume, token-weighted accumulation and device-independent randomness.

    A subclass names its `network_class` and implements `network_loss`, `scores` and `summarise`. The constructor's
    further keyword arguments are the network's. Gradients of a step are those of the summed loss over all predictions
    of the global window, divided by their number: short windows and padding weigh what they hold. Dropout is seeded by
    (seed, step, number of the micro-batch over all devices), so it depends neither on history nor on the devices.
    """

    network_class: ClassVar[type[nn.Module]]

    def __init__(
        self,
        *,
        optimizer: Callable[[Iterable[Any]], Optimizer],
        schedule: Schedule | Plateau | None = None,
        seed: Annotated[int, Ge(0)] = 0,
        gradient_clip_norm: Annotated[float, Gt(0)] | None = None,
        weights: str | None = None,
        **network: Any,
    ) -> None:
        """`optimizer` makes an optimizer from parameter groups; `weights` is a file to start from."""
        super().__init__()
        self.automatic_optimization = False
        self.make_optimizer = optimizer
        self.schedule = schedule
        self.seed = seed
        self.gradient_clip_norm = gradient_clip_norm
        self.weights = weights
        self.network_arguments = network
        self.network: Any = None
        self.step_metrics: dict[str, Tensor | float] = {}
        self.val_metrics: dict[str, float] = {}
        self.window_units: Tensor | float = 0.0
        self._sums: dict[str, Tensor | float] = {}

    # What a subclass says

    def network_loss(self, network: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        """Loss summed over the counted predictions of one micro-batch: a float32 scalar; uses its arguments only."""
        raise NotImplementedError(f"{type(self).__name__} does not implement network_loss()")

    def scores(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Sums over one evaluation micro-batch: `loss` and whatever `summarise` needs."""
        return {"loss": self.network_loss(self.network, batch)}

    def summarise(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Validation metrics from the sums over the whole held-out set (`units` is the number of predictions)."""
        return {"val/loss": sums["loss"] / sums["units"]}

    def load_weights(self, path: Path) -> None:
        """Start from the weights in a file.

        Raises:
            ValueError: this module knows no format to start from.
        """
        raise ValueError(f"model.weights={path}: {type(self).__name__} cannot start from a weights file")

    # What Lightning calls

    def build_network(self) -> nn.Module:
        """The network, on the current default device (build under `torch.device("meta")` to only count)."""
        return self.network_class(**self.network_arguments)

    def initialise(self, network: nn.Module) -> None:
        """Give every parameter its first value: a function of the seed alone, or the weights file."""
        reseed(next(network.parameters()).device, self.seed, INIT)
        with torch.no_grad():
            network.init_weights()  # type: ignore[operator]
            if self.weights is not None:
                self.load_weights(Path(self.weights))

    def configure_model(self) -> None:
        """Build on the meta device; the strategy transforms, materialises and initialises the network."""
        if self.network is not None:
            return
        with torch.device("meta"):
            self.network = self.build_network()
        place = getattr(self.trainer.strategy, "place", None)
        if place is None:
            self.network.to_empty(device=self.trainer.strategy.root_device)
            self.initialise(self.network)
        else:
            place(self.network, self.initialise)

    def build_optimizer(self, network: nn.Module) -> Optimizer:
        """The optimizer over decayed and undecayed groups, each with the learning rate that the network asks for.

        Raises:
            ValueError: the settings do not fit together, or the optimizer does not fit the network.
        """
        optimizer = self.make_optimizer(decay_groups(network))
        scale_rates(optimizer)
        return optimizer

    def configure_optimizers(self) -> Any:
        """The optimizer and the scheduler that follows `schedule`."""
        optimizer = self.build_optimizer(self.network)
        warn_of_lost_updates(optimizer)
        if self.schedule is None:
            return optimizer
        following = scheduler(self.schedule, optimizer, self.trainer.max_steps)
        config: dict[str, Any] = {"scheduler": following}
        if isinstance(self.schedule, Plateau):
            config["monitor"] = self.schedule.monitor
        return {"optimizer": optimizer, "lr_scheduler": config}

    def training_step(self, window: Window, batch_idx: int) -> None:
        """One optimizer step over the window's micro-batches."""
        optimizer: Any = self.optimizers()
        # A tensor, so that nobody waits for the device to learn how many predictions the other devices have.
        units = self._sum_over_data(float(sum(batch["units"] for batch in window)))
        loss = torch.zeros((), device=self._root_device)
        optimizer.zero_grad()
        for number, batch in enumerate(window):
            reseed(self._root_device, self.seed, DROPOUT, batch["step"], batch["micro"])
            with nullcontext() if number == len(window) - 1 else self._without_gradient_sync():
                part = self.network_loss(self.network, batch)
                # Strategies average gradients over shares of the data: times their number makes it a sum.
                self.manual_backward(part * (self._data_parallel_size / units).float())
            loss += part.detach()
        self.window_units = units
        group = optimizer.param_groups[0]
        rate = group["lr"] / group.get("lr_multiplier", 1.0)  # what the schedule makes of optimizer.lr
        self.step_metrics = {"train/loss": loss / units, "train/learning_rate": rate}
        self._update(optimizer)

    def _update(self, optimizer: Any) -> None:
        """Clip, step the optimizer and the schedule; a precision with loss scaling may skip both."""
        precision = self._number_format
        if precision is not None:
            precision.unscale(self.network.parameters())
        if self.gradient_clip_norm is not None or (precision is not None and precision.needs_gradient_norm):
            norm = self._limit_gradient_norm(self.gradient_clip_norm)
            self.step_metrics["train/gradient_norm"] = norm
            if precision is not None:
                precision.judge(norm)
        optimizer.step()
        if precision is not None:
            precision.after_step(self.network)
            if precision.skipped:
                # The loss scale was too large; that is no failure of the run, and the schedule has not moved.
                del self.step_metrics["train/gradient_norm"]
                return
        following = self.lr_schedulers()
        if following is not None and not isinstance(following, ReduceLROnPlateau):
            following.step()  # type: ignore[union-attr]

    def on_validation_epoch_start(self) -> None:
        self._sums = {}

    def validation_step(self, window: Window, batch_idx: int) -> None:
        """Add up the scores of the held-out micro-batches."""
        for batch in window:
            counts = {"units": float(batch["units"]), "bytes": float(batch.get("bytes", 0))}
            for name, value in (self.scores(batch) | counts).items():
                self._sums[name] = self._sums.get(name, 0.0) + value

    def on_validation_epoch_end(self) -> None:
        """Validation metrics over all devices; a plateau schedule looks at them here."""
        totals = {name: self.over_devices(float(value)) for name, value in sorted(self._sums.items())}
        self.val_metrics = self.summarise(totals)
        self.log_dict(self.val_metrics, logger=False)
        if self.trainer.sanity_checking or not self.trainer.fit_loop.epoch_loop.batch_progress.total.ready:
            return
        following = self.lr_schedulers() if isinstance(self.schedule, Plateau) else None
        if following is not None:
            following.step(self.val_metrics[self.schedule.monitor])  # type: ignore[union-attr, arg-type]

    def reduced_metrics(self) -> dict[str, float]:
        """The last step's metrics over all devices, as numbers; waits for the device, so for logging steps only."""
        row = {name: float(value) for name, value in self.step_metrics.items()}
        if "train/loss" in row:
            row["train/loss"] = self.over_devices(row["train/loss"])
        return row | (self._number_format.metrics() if self._number_format is not None else {})

    def over_devices(self, value: float) -> float:
        """Sum of a number over all shares of the data; devices that split tensors hold the same share."""
        return float(self._sum_over_data(value))

    # What it asks of precision and strategy; a strategy not matmill's counts every process as a share of the data.

    @property
    def _number_format(self) -> Any:
        """matmill's precision plugin, or None for another."""
        plugin = self.trainer.precision_plugin
        return plugin if hasattr(plugin, "judge") else None

    @property
    def _root_device(self) -> torch.device:
        return self.trainer.strategy.root_device

    @property
    def _data_parallel_size(self) -> int:
        return int(getattr(self.trainer.strategy, "data_parallel_size", self.trainer.world_size))

    def _sum_over_data(self, value: float) -> Tensor:
        # Filled there: a copy from the host's pageable memory waits for the device.
        total = torch.full((), value, dtype=torch.float64, device=self._root_device)
        if self._data_parallel_size > 1:
            dist.all_reduce(total, group=getattr(self.trainer.strategy, "data_parallel_group", None))
        return total

    def _limit_gradient_norm(self, max_norm: float | None) -> Tensor:
        limit = getattr(self.trainer.strategy, "limit_gradient_norm", None)
        if limit is not None:
            norm: Tensor = limit(self.network.parameters(), max_norm)
            return norm
        return nn.utils.clip_grad_norm_(self.network.parameters(), max_norm or float("inf"))

    def _without_gradient_sync(self) -> AbstractContextManager[Any]:
        block = getattr(self.trainer.strategy, "block_backward_sync", None)
        return block() if block is not None else nullcontext()
