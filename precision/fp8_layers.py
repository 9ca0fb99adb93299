"""Which layers of a network can multiply in float8, and why the others cannot."""

import re
from collections.abc import Mapping

from torch import nn
from torch.nn.modules.conv import _ConvNd

MULTIPLE = 16
"""Rows and columns of float8 operands come in 16 bytes (cuBLAS; the check in `torch._scaled_mm`)."""


def layers_for_float8(network: nn.Module, tensor_parallel: int = 1) -> tuple[list[str], dict[str, str]]:
    """Names of the linear layers to convert, and of the linear and convolutional layers to keep with the reasons.

    The first and the last module with parameters of its own, in the order in which they were assigned, are kept: they
    see the raw inputs and make the outputs (DeepSeek-AI 2024, arXiv:2412.19437, section 3.3.1, keeps embedding and head
    too). So are subclasses of nn.Linear, which have a forward of their own.
    """
    with_parameters = [
        name for name, module in network.named_modules() if any(True for _ in module.parameters(recurse=False))
    ]
    ends = {with_parameters[0]: "first layer", with_parameters[-1]: "last layer"} if with_parameters else {}
    layers: list[str] = []
    kept: dict[str, str] = {}
    for name, module in network.named_modules():
        if not isinstance(module, nn.Linear | _ConvNd):
            continue
        reason = ends.get(name) or _reason(module, tensor_parallel)
        if reason is None:
            layers.append(name)
        else:
            kept[name] = reason
    return layers, kept


def _reason(layer: nn.Module, tensor_parallel: int) -> str | None:
    """Why a layer within a network cannot be converted; None when it can."""
    if not isinstance(layer, nn.Linear):
        return "convolution"
    if type(layer) is not nn.Linear:
        return f"{type(layer).__name__} has a forward of its own"
    step = MULTIPLE * tensor_parallel  # tensor parallelism splits one of the two
    for key, size in (("in_features", layer.in_features), ("out_features", layer.out_features)):
        if size % step:
            split = f" = {MULTIPLE} x {tensor_parallel} tensor-parallel devices" if tensor_parallel > 1 else ""
            return f"{key}={size} is not a multiple of {step}{split}"
    return None


def summary(kept: Mapping[str, str]) -> str:
    """One line: the layers with `*` for numbers in their names, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in kept.items():
        pattern = re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", name)
        patterns = by_reason.setdefault(reason, [])
        if pattern not in patterns:
            patterns.append(pattern)
    return "; ".join(f"{', '.join(patterns)} ({reason})" for reason, patterns in by_reason.items())
