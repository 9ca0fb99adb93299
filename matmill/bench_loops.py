"""The loops that `matmill bench train` compares with, each taking its step on the batch that matmill has just had."""

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import lightning.pytorch as L
import torch
from omegaconf import DictConfig
from torch import nn

from lightning_modules.base import Window, WindowModule
from matmill.errors import ConfigError

Step = Callable[[Window], None]
Make = Callable[[DictConfig, L.Trainer, Any], Step]


class InTurn(L.Callback):
    """After each step of the Trainer, takes and times a step of every other loop, and leaves them out of ours.

    Taking turns step by step lets slow moments of the machine fall on all loops alike.
    """

    def __init__(self, config: DictConfig, make: dict[str, Make], stop_after: int) -> None:
        self.config, self.make, self.stop_after = config, make, stop_after
        self.steps: dict[str, Step] = {}
        self.seconds: dict[str, list[float]] = {name: [] for name in ("matmill", *make)}
        self.units = 0.0
        self._since = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.steps = {name: make(self.config, trainer, pl_module) for name, make in self.make.items()}
        self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Window, batch_idx: int
    ) -> None:
        if len(self.seconds["matmill"]) == self.stop_after:
            return
        _wait()
        self.seconds["matmill"].append(time.perf_counter() - self._since)
        self.units = float(sum(micro["units"] for micro in batch))
        for name, step in self.steps.items():
            begin = time.perf_counter()
            step(batch)
            _wait()
            self.seconds[name].append(time.perf_counter() - begin)
        self._since = time.perf_counter()


class BareLoop:
    """The plainest PyTorch loop over the same network, optimizer, clipping and number format, its batch at hand."""

    def __init__(self, config: DictConfig, trainer: L.Trainer, module: WindowModule) -> None:
        self.network: nn.Module = copy.deepcopy(module.network)
        self.loss = module.network_loss
        self.clip = config.trainer.gradient_clip_norm
        self.optimizer = module.build_optimizer(self.network)
        self.forward: Callable[[], AbstractContextManager[Any]] = trainer.precision_plugin.forward_context

    def __call__(self, window: Window) -> None:
        units = sum(batch["units"] for batch in window)
        self.optimizer.zero_grad()
        for batch in window:
            with self.forward():
                loss = self.loss(self.network, batch) / units
            loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
        self.optimizer.step()


def transformers_step(config: DictConfig, trainer: L.Trainer, module: WindowModule) -> Step:
    """One step of transformers.Trainer with LlamaForCausalLM of the same sizes, optimizer settings and format.

    Raises:
        ConfigError: the model is no transformer of ours.
    """
    from lightning_modules.transformer import Transformer, to_standard
    from lightning_modules.transformer.huggingface import config_json

    if not isinstance(module.network, Transformer):
        raise ConfigError("against=[transformers]: compares transformers only")
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    settings = dict(config_json(to_standard(module.network)))
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in settings.items() if k != "architectures"}))
    mixed = "bf16" in str(trainer.precision)
    arguments = TrainingArguments(
        output_dir=config.run_dir,
        use_cpu=trainer.strategy.root_device.type == "cpu",
        bf16=mixed,
        optim="adamw_torch_fused",
        learning_rate=config.optimizer.lr,
        max_grad_norm=config.trainer.gradient_clip_norm or 0.0,
        report_to=[],
        max_steps=10**6,
    )
    theirs = Trainer(model=model, args=arguments)
    theirs.create_optimizer()
    theirs.current_gradient_accumulation_steps = 1  # Trainer.train sets it, whose loop cannot be taken in turn
    prepared, optimizer = theirs.accelerator.prepare(theirs.model, theirs.optimizer)

    def step(window: Window) -> None:
        for batch in window:
            theirs.training_step(prepared, {"input_ids": batch["tokens"], "labels": batch["tokens"]})
        if config.trainer.gradient_clip_norm is not None:
            theirs.accelerator.clip_grad_norm_(prepared.parameters(), config.trainer.gradient_clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
