"""Runs the config's own training step on fake tensors and pretended devices, and records what it would cost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import FSDPModule
from torch.utils._pytree import tree_map

from lightning_modules.base import WindowModule
from matmill.pretended_devices import pretended_devices
from strategies.gradient_norm import limit_gradient_norm
from strategies.mesh import Mesh, make_mesh
from strategies.place import Placement, lay_out, prepare
from utilization.communication import CommunicationTape
from utilization.fake import empty_on_cpu, fakeify
from utilization.flops import FlopCount, FlopCounter
from utilization.live_memory import LiveMemory, Peak, by_phase
from utilization.operations import Operation, Operations
from utilization.tape import Listener, Tape

CPU = torch.device("cpu")


@dataclass
class StepRecord:
    """What one optimizer step of one device does.

    flops: of one micro-batch. operations: of the whole step. sections: the most bytes alive, by phase and place in the
    network. state: bytes that stay between steps, by part. sent: bytes by (kind of collective, mesh dimension), and
    calls by the same.
    """

    flops: FlopCount
    operations: list[Operation]
    sections: dict[tuple[str, str], Peak]
    state: dict[str, int]
    sent: dict[tuple[str, str], float]
    calls: dict[tuple[str, str], float]

    @property
    def peaks(self) -> dict[str, Peak]:
        """The most bytes alive, by phase."""
        return by_phase(self.sections)

    @property
    def held_bytes(self) -> int:
        """What a step keeps at its peak beyond what stays between steps."""
        return round(max(peak.bytes for peak in self.sections.values()) - sum(self.state.values()))


@dataclass(frozen=True)
class Step:
    """What is recorded: a module, its number format, a strategy, and the micro-batches (shapes) of one device."""

    module: WindowModule
    precision: Any
    strategy: Any
    batch: dict[str, Any]
    micro_batches: int
    devices: int = 1

    def network(self) -> nn.Module:
        """The network on the meta device."""
        with torch.device("meta"):
            return self.module.build_network()


def record_step(step: Step, blocks: int | None = None) -> StepRecord:
    """Two steps on fake tensors, the second recorded: the first makes the optimizer's state.

    `blocks`: build the network with only so many of its repeated blocks.

    Raises whatever the module raises when it needs the values of its tensors.
    """
    with pretended_devices(step.devices if isinstance(step.strategy, Mesh) else 1), torch.random.fork_rng(devices=[]):
        placement = _placement(step)
        network = step.network()
        if blocks is not None:
            network.blocks = network.blocks[:blocks]  # type: ignore[index]
        prepare(network, step.precision, placement)
        return _Recording(step, network, placement).run()


class _Recording:
    """One recording in progress."""

    def __init__(self, step: Step, network: nn.Module, placement: Placement) -> None:
        self.step, self.network, self.placement = step, network, placement
        self.memory, self.operations, self.flops = LiveMemory(), Operations(), FlopCounter()
        self.sent = CommunicationTape(placement.mesh)
        self._micro_batch = 0

    def run(self) -> StepRecord:
        tape = Tape([self.memory])
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        with fake:
            fakeify(self.network).train()
        # Outside of the mode: the parameters stay fake, and the mesh computes its coordinates with real numbers.
        lay_out(self.network, self.step.precision, self.placement)
        with fake, self.memory, torch.enable_grad(), tape:
            self.memory.watch(self.network)
            self._watch_blocks()
            batch = self.step.precision.convert_input(tree_map(empty_on_cpu, self.step.batch))
            window = [batch] + [tree_map(_copy, batch) for _ in range(min(self.step.micro_batches, 2) - 1)]
            self.memory.claim((value for micro in window for value in micro.values() if _is_tensor(value)), "batch")
            optimizer = self.step.module.build_optimizer(self.network)
            self._one_step(tape, optimizer, window)
            self.memory.reset()
            tape.listeners = [self.memory, self.operations]
            with self.sent:
                self._one_step(tape, optimizer, window)
            optimizer.zero_grad()
            state = {part: size for part, size in self.memory.parts.items() if size and part in _STATE}
        return StepRecord(
            self.flops.count(),
            list(self.operations.found.values()),
            self.memory.peaks,
            state,
            dict(self.sent.sent),
            dict(self.sent.calls),
        )

    def _one_step(self, tape: Tape, optimizer: Any, window: list[Any]) -> None:
        """As `WindowModule.training_step` does it; one micro-batch stands for all but the last of a longer window."""
        listeners = list(tape.listeners)
        optimizer.zero_grad()
        for number, batch in enumerate(window):
            self._micro_batch = number
            last = number == len(window) - 1
            self.operations.weight = 1.0 if last else float(self.step.micro_batches - 1)
            counting: list[Listener] = [self.flops] if last and self.operations in listeners else []
            tape.listeners = [*listeners, *counting]
            self.flops.watch(self.network)
            with nullcontext() if last else self._without_gradient_sync():
                tape.stage = "forward"
                with self.step.precision.forward_context():
                    loss = self.step.module.network_loss(self.network, batch)
                (loss * 0.5).backward()
                del loss
        self.operations.weight = 1.0
        tape.listeners, tape.stage, self.memory.section = listeners, "optimizer", ""
        clip = self.step.module.gradient_clip_norm
        if clip is not None or self.step.precision.needs_gradient_norm:
            limit_gradient_norm(self.network.parameters(), clip, CPU)
        with torch.autocast("cpu", enabled=False):
            optimizer.step()
        self.step.precision.after_step(self.network)
        self.memory.watch_optimizer(optimizer)
        tape.stage = "forward"

    def _watch_blocks(self) -> None:
        """Tell the memory in which micro-batch and where in the network the step is: in the first block, the last, one
        between them, or outside. In each of these places the bytes grow linearly with the number of blocks."""
        blocks = list(getattr(self.network, "blocks", []))

        def enters(place: str) -> Callable[..., None]:
            def enter(*_: Any) -> None:
                self.memory.section = f"{self._micro_batch} {place}"

            return enter

        for number, block in enumerate(blocks):
            place = "first" if number == 0 else "last" if number == len(blocks) - 1 else "inner"
            entered, left = enters(place), enters("outside")
            block.register_forward_pre_hook(entered)

            def leave(_: Any, __: Any, out: Any, entered: Any = entered, left: Any = left) -> None:
                left()
                if isinstance(out, torch.Tensor) and out.requires_grad:
                    out.register_hook(entered)  # its gradient comes when the block's backward pass begins

            block.register_forward_hook(leave)

    @contextmanager
    def _without_gradient_sync(self) -> Iterator[None]:
        root = self.network if isinstance(self.network, FSDPModule) else None
        if root is not None:
            root.set_requires_gradient_sync(False)
        yield
        if root is not None:
            root.set_requires_gradient_sync(True)


_STATE = ("weights", "optimizer", "buffers")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _copy(value: Any) -> Any:
    return value.clone() if _is_tensor(value) else value


def _placement(step: Step) -> Placement:
    if isinstance(step.strategy, Mesh):
        mesh = make_mesh(step.strategy.layout.over(step.devices), "cpu")
        placement = step.strategy.placement_over(mesh, CPU)
    else:
        placement = Placement(CPU, recompute=getattr(step.strategy, "recompute", "none"))
    return Placement(CPU, placement.mesh, placement.recompute, False, placement.reshard_after_forward)
