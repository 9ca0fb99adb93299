"""Fake tensors: shapes, types and strides without memory, on which a real training step runs anywhere."""

from typing import Any

import torch
from torch import Tensor, nn


def fakeify(module: nn.Module) -> nn.Module:
    """Give a module built on the meta device fake CPU tensors, ties kept; call it inside a FakeTensorMode.

    Meta tensors alone will not do: attention on them falls apart into other operators than on a real device.
    """
    replaced: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in replaced:
            empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            is_parameter = isinstance(tensor, nn.Parameter)
            replaced[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
        return replaced[id(tensor)]

    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = fake(tensor)  # type: ignore[assignment]
    return module


def empty_on_cpu(value: Any) -> Any:
    """A tensor's shape and type as a fake CPU tensor inside a FakeTensorMode; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device="cpu", requires_grad=value.requires_grad)
