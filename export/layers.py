"""The layers of a network that a format may quantize: linear maps and convolutions."""

from collections.abc import Iterable

from torch import nn


def layers(network: nn.Module) -> dict[str, nn.Linear | nn.Conv2d]:
    """All linear and convolution layers by their path in `network`; a head that is the embedding is none."""
    return {path: module for path, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}


def named_layers(network: nn.Module, names: Iterable[str]) -> frozenset[str]:
    """The paths of the layers that `names` name: a layer's own path, or that of a part that holds some.

    Raises:
        ValueError: a name fits none.
    """
    found: set[str] = set()
    for name in names:
        fitting = {path for path in layers(network) if path == name or path.startswith(f"{name}.")}
        if not fitting:
            known = ", ".join(layers(network))
            raise ValueError(f"skip: {name!r} names no layer; there are: {known[:300]}{'...' * (len(known) > 300)}")
        found |= fitting
    return frozenset(found)
