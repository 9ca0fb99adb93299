"""What matmill's own optimizers share: a walk over this process's shards, noise for rounding, exact loading."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from datamodules.order import ROUNDING, mix
from lightning_modules.optimizers.shards import local, shard_coordinate

CHUNK_ELEMENTS = {"cpu": 2**16}
"""Elements worked on at once, by device: their few float32 copies stay in a CPU's second-level cache."""

LARGEST_CHUNK_ELEMENTS = 2**23
"""On any other device: copies of 32 MiB, large enough to hide the launch of a kernel, however large a parameter is."""


class Member(NamedTuple):
    """A parameter with a gradient, its state, and its number in the optimizer."""

    parameter: Tensor
    state: dict[str, Any]
    number: int


class ShardedOptimizer(Optimizer):
    """Updates parameters part by part on local shards, in float32 arithmetic, whatever mesh they are on.

    Random bits are a function of the seed, the step, the parameter and the shard: processes that hold the same part of
    a parameter round it alike, and nothing random has to be saved. Each state counts its steps in `step`.
    """

    def __init__(
        self, params: Iterable[Any], defaults: dict[str, Any], *, stochastic_rounding: bool = True, seed: int = 0
    ) -> None:
        """`stochastic_rounding`: of bfloat16 weights and state; otherwise they are rounded to nearest."""
        super().__init__(params, defaults)
        self.stochastic_rounding, self.seed = stochastic_rounding, seed

    def update(self, group: dict[str, Any], members: list[Member]) -> None:
        """Take one step with the parameters of one group that have a gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not implement update()")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One optimizer step; returns what `closure` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        number = 0
        for group in self.param_groups:
            members = []
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    state["step"] = state.get("step", 0) + 1
                    members.append(Member(parameter, state, number))
                number += 1
            self.update(group, members)
        return loss

    def noise(self, member: Member) -> Generator | None:
        """The generator that rounds this parameter and its state in this step; None where nothing is to be rounded."""
        if not self.stochastic_rounding or member.parameter.dtype != torch.bfloat16:
            return None
        place = shard_coordinate(member.parameter)
        seed = mix(self.seed, ROUNDING, member.state["step"], member.number, *place)
        return torch.Generator(device=local(member.parameter).device).manual_seed(seed)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as it was saved: torch would cast codes and float32 scales to the parameters' type."""
        super().load_state_dict(state_dict)
        numbers = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        parameters = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, parameter in zip(numbers, parameters, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                moved = value.to(local(parameter).device) if isinstance(value, Tensor) else value
                self.state[parameter][name] = moved


def chunks(part: Tensor) -> Iterator[Any]:
    """Indices along the first dimension that cut a local tensor into pieces, none if it is empty."""
    if part.dim() == 0:
        yield ...
        return
    elements = CHUNK_ELEMENTS.get(part.device.type, LARGEST_CHUNK_ELEMENTS)
    rows = max(1, elements * part.shape[0] // max(1, part.numel()))
    for start in range(0, part.shape[0] if part.numel() else 0, rows):
        yield slice(start, start + rows)


def parameters_of(groups: Iterable[Any]) -> list[Tensor]:
    """All parameters of a list of groups, or of tensors."""
    return [tensor for group in groups for tensor in (group["params"] if isinstance(group, dict) else [group])]
