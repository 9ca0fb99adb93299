"""What runs in each process of `test_tensor_parallel.py`."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from lightning_modules.alexnet import tensor_parallel
from lightning_modules.alexnet.network import AlexNet
from lightning_modules.decay import decay_groups
from tests.lightning_modules.split import (
    Case,
    compare,
    distance,
    everything,
    fresh,
    load,
    save,
    split,
    stepped,
    whole,
)


def make(**changes: Any) -> AlexNet:
    """A quarter of the channels, for images of 28 pixels."""
    sizes = {"num_classes": 10, "image_size": 28, "width": 0.25, "hidden_size": 64, "initialisation": "he"}
    return AlexNet(**{**sizes, **changes})


def batches(image_size: int = 28) -> list[tuple[Tensor, Tensor]]:
    """Two batches of four images."""
    generator = torch.Generator().manual_seed(7)
    images = torch.randn(2, 4, 3, image_size, image_size, generator=generator)
    return list(zip(images, torch.randint(10, (2, 4), generator=generator), strict=True))


def loss(network: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Summed over the images."""
    return F.cross_entropy(network(batch[0]).float(), batch[1], reduction="sum")


WITHOUT = {"dropout": 0.0}
CASES = {
    "plain": Case(WITHOUT),
    "dropout": Case({}),
    "odd number of classes": Case({"num_classes": 11}),
    "recomputed": Case({}, recompute=True),
    "sharded": Case({}, shard=True),
    "sharded, recomputed, odd": Case({"num_classes": 11}, shard=True, recompute=True),
}
HALF = {"bf16": Case({}, bf16=True), "bf16, sharded": Case({}, bf16=True, shard=True)}
COMPILED = {
    "compiled": Case(WITHOUT, compile=True),
    "compiled, sharded, recomputed": Case({}, shard=True, recompute=True, compile=True),
}


def compared(cases: dict[str, Case]) -> dict[str, Any]:
    """Every case's errors."""
    return {name: compare(make, loss, batches(), case) for name, case in cases.items()}


def evaluated() -> float:
    """Error of the logits in evaluation."""
    reference, network = fresh(make, {}).eval(), split(fresh(make, {}), Case({})).eval()
    with torch.no_grad():
        return distance(network(batches()[0][0]), reference(batches()[0][0]))


def trained() -> tuple[list[float], list[float], float]:
    """Losses of five steps with momentum of one process and of the split network, and the weights' distance."""
    one, several = (fresh(make, {}) for _ in range(2))
    split(several, Case({}))
    optimizer = partial(torch.optim.SGD, lr=1e-3, momentum=0.9, weight_decay=5e-4)
    losses = [stepped(network, optimizer(decay_groups(network)), loss, batches(), 5) for network in (one, several)]
    pairs = zip(one.parameters(), several.parameters(), strict=True)
    return *losses, max(distance(whole(b), whole(a)) for a, b in pairs)  # type: ignore[return-value]


def layouts(classes: int) -> dict[str, tuple[Any, int]]:
    """Placement of each parameter, and how many of its rows are here."""
    parameters = split(fresh(make, {"num_classes": classes}), Case({})).named_parameters()
    return {n: (p.placements[0], len(p.to_local())) for n, p in parameters if isinstance(p, DTensor)}


def with_wrong_gradients() -> dict[str, Any]:
    """The errors if what comes back from conv3 were taken for whole: this device's part of the sum."""
    right = tensor_parallel.whole_input

    def without_grad_placements(x: Tensor, mesh: Any, placement: Any) -> Tensor:
        return DTensor.from_local(x, mesh, [placement]).redistribute(placements=[Replicate()]).to_local()

    tensor_parallel.whole_input = without_grad_placements
    try:
        return compare(make, loss, batches(), Case(WITHOUT))
    finally:
        tensor_parallel.whole_input = right


def sgd(network: Any) -> torch.optim.Optimizer:
    """The optimizer whose momentum goes into checkpoints."""
    return torch.optim.SGD(decay_groups(network), lr=1e-2, momentum=0.9)


def exchanged(folder: Path) -> Any:
    """Load the checkpoint of one process into a network that is split twice, go on, and save that."""
    network = split(fresh(make, {}, seed=1), Case({}, shard=True))
    optimizer = sgd(network)
    stepped(network, optimizer, loss, batches()[:1], 1)
    load(folder / "one", network, optimizer)
    loaded = everything(network, optimizer)
    stepped(network, optimizer, loss, batches()[:1], 1)
    save(folder / "several", network, optimizer)
    return loaded, everything(network, optimizer)


def everything_at_once(folder: Path) -> dict[str, Any]:
    """One group of processes runs it all."""
    found = compared(CASES | HALF)
    found["large"] = compare(make, loss, batches(64), Case({"image_size": 64}))
    found["wrong"], found["evaluated"], found["trained"] = with_wrong_gradients(), evaluated(), trained()
    found["layouts"], found["exchanged"] = (layouts(10), layouts(11)), exchanged(folder)
    return found
