"""The layers of a network that a format may quantize: linear maps and convolutions."""

import difflib
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
            raise ValueError(f"skip: {name!r} names no layer{_nearest(name, network)}")
        found |= fitting
    return frozenset(found)


def _nearest(name: str, network: nn.Module) -> str:
    """The layers or parts that `name` is most like; where none is, the parts that the network is made of."""
    parts = {path.rsplit(".", depth)[0] for path in layers(network) for depth in range(path.count(".") + 1)}
    alike = difflib.get_close_matches(name, sorted(parts), n=2, cutoff=0.75)
    if alike:
        return f"; did you mean {' or '.join(alike)}?"
    return f"; it has {', '.join(dict.fromkeys(path.partition('.')[0] for path in layers(network)))}"
