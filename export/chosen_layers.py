"""Which layers a quantizing format takes, and why it leaves the others in floating point."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torch import nn

from export.layers import layers
from lightning_modules.transformer.network import Transformer


@dataclass(frozen=True)
class Chosen:
    """Paths in the network: of the layers to quantize, and of all others with the reason."""

    quantized: list[str]
    skipped: dict[str, str]


def choose(
    network: nn.Module,
    skip: Collection[str],
    objection: Callable[[nn.Linear], str | None],
    reasons: Mapping[str, str] | None = None,
) -> Chosen:
    """Sort out the layers for a format that quantizes linear layers and leaves a language model's head alone.

    `skip`: paths the user wants left alone. `objection`: why the format cannot have a layer; None if it can.
    `reasons`: further paths to be left alone, and why.
    """
    chosen = Chosen([], {})
    for path, layer in layers(network).items():
        reason: str | None = None
        if path in skip:
            reason = "asked for"
        elif reasons and path in reasons:
            reason = reasons[path]
        elif not isinstance(layer, nn.Linear):
            reason = "only linear layers"
        elif isinstance(network, Transformer) and layer is network.head:
            reason = "head policy"
        else:
            reason = objection(layer)
        if reason is None:
            chosen.quantized.append(path)
        else:
            chosen.skipped[path] = reason
    return chosen


def group_objection(layer: nn.Linear, group: int) -> str | None:
    """Why `layer` has no groups of `group` inputs; None if it has."""
    inputs = layer.in_features
    return f"{group} does not divide {inputs}" if inputs % group else None
