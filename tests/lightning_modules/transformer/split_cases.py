"""What runs in each process of `test_tensor_parallel.py`."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from lightning_modules.decay import decay_groups, scale_rates
from lightning_modules.transformer import vocabulary_parallel
from lightning_modules.transformer.network import Transformer
from tests.lightning_modules.split import (
    Case,
    compare,
    distance,
    everything,
    fresh,
    load,
    mesh_of,
    save,
    split,
    stepped,
    whole,
)


def make(**changes: Any) -> Transformer:
    """Two blocks, the keys and values of four heads shared by two."""
    sizes = {"vocab_size": 96, "d_model": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "max_sequence_length": 64}
    return Transformer(**{**sizes, **changes})


def batches() -> list[dict[str, Tensor]]:
    """Two batches of 2 x 40 tokens, some targets not counted, two documents in a row."""
    generator = torch.Generator().manual_seed(7)
    found = []
    for ignored in (slice(5, 20), slice(0, 3)):
        tokens, targets = torch.randint(96, (2, 2, 40), generator=generator)
        targets[0, ignored] = -100
        found.append({"tokens": tokens, "targets": targets, "documents": (torch.arange(40) > 17).long().expand(2, 40)})
    return found


def loss(network: Any, batch: dict[str, Tensor]) -> Tensor:
    """Summed over the tokens."""
    value: Tensor = network(batch["tokens"], batch["targets"])
    return value


def loss_of_documents(network: Any, batch: dict[str, Tensor]) -> Tensor:
    """With attention within documents."""
    value: Tensor = network(batch["tokens"], batch["targets"], documents=batch["documents"])
    return value


def loss_of_logits(network: Any, batch: dict[str, Tensor]) -> Tensor:
    """A loss that somebody makes of the whole logits."""
    logits = network(batch["tokens"]).flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, batch["targets"].flatten(), reduction="sum")


MUP = {"parametrization": "mup", "base_width": 16}
TIED, CHUNKED, DROPOUT = {"tie_embeddings": True}, {"loss_chunk_tokens": 16}, {"dropout": 0.1}
CASES = {
    "plain": Case({}),
    "as many keys as queries": Case({"n_kv_heads": 4}),
    "tied": Case(TIED),
    "chunked": Case(CHUNKED),
    "dropout": Case(DROPOUT),
    "mup": Case(MUP),
    "mup, tied, sharded": Case(MUP | TIED, shard=True),
    "tied, chunked, dropout": Case(TIED | CHUNKED | DROPOUT),
    "whole vocabulary": Case({"vocab_size": 97}),
    "whole vocabulary, tied": Case({"vocab_size": 97} | TIED | CHUNKED),
    "recomputed": Case(DROPOUT, recompute=True),
    "four devices": Case({"n_kv_heads": 4} | CHUNKED, shape=(1, 4)),
    "sharded": Case(DROPOUT, shard=True),
    "sharded, tied, chunked": Case(TIED | CHUNKED | DROPOUT, shard=True, recompute=True),
    "sharded, whole vocabulary": Case({"vocab_size": 97} | TIED, shard=True),
}
HALF = {
    "bf16": Case(CHUNKED, bf16=True),
    "bf16, sharded": Case(TIED | CHUNKED, bf16=True, shard=True),
}
COMPILED = {
    "compiled, sharded": Case(DROPOUT, shard=True, compile=True),
    # torch 2.14 cannot compile dropout and collectives in a checkpointed block: it takes the mesh for a saved tensor.
    "compiled, sharded, recomputed": Case({}, shard=True, recompute=True, compile=True),
}


def compared(cases: dict[str, Case]) -> dict[str, Any]:
    """Every case's errors."""
    return {name: compare(make, loss, batches(), case) for name, case in cases.items()}


def ignored_everywhere() -> tuple[float, float]:
    """Loss and largest gradient when no target counts."""
    batch = batches()[0]
    network = split(fresh(make, CHUNKED), Case({}))
    value = network(batch["tokens"], torch.full_like(batch["targets"], -100))
    value.backward()
    return float(value.detach()), max(float(whole(parameter.grad).abs().max()) for parameter in network.parameters())


def evaluated(tied: bool) -> list[float]:
    """Errors of logits and loss without gradients, and of logits in inference mode."""
    batch = batches()[0]
    reference, network = (fresh(make, {"tie_embeddings": tied}) for _ in range(2))
    split(network, Case({}))
    with torch.no_grad():
        found = [distance(network(batch["tokens"]), reference(batch["tokens"]))]
        found.append(abs(float(loss(network, batch)) / float(loss(reference, batch)) - 1))
    with torch.inference_mode():
        found.append(distance(network(batch["tokens"]), reference(batch["tokens"])))
    return found


def trained() -> dict[str, Any]:
    """Five steps of one process and of a split network over both batches in turn, with dropout."""
    # Small enough a rate for errors not to grow: the loss is a sum over 65 tokens.
    plain = partial(torch.optim.SGD, lr=1e-3, momentum=0.9, weight_decay=0.1)
    fused = partial(torch.optim.AdamW, lr=1e-3, eps=1e-3, fused=True)
    found = {}
    for name, optimizer, case in (
        ("sgd", plain, Case({})),
        ("adamw", fused, Case({})),
        ("mup", fused, Case(MUP)),
    ):
        one, several = (fresh(make, DROPOUT | TIED | case.changes) for _ in range(2))
        split(several, case)
        made = [optimizer(decay_groups(n)) for n in (one, several)]
        for each in made:
            scale_rates(each)
        losses = [stepped(n, o, loss, batches(), 5) for n, o in zip((one, several), made, strict=True)]
        pairs = zip(one.parameters(), several.parameters(), strict=True)
        found[name] = (*losses, max(distance(whole(b), whole(a)) for a, b in pairs))
    return found


def layouts() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Placements and local shape of each parameter."""
    network = split(fresh(make, {}), Case({}))
    parameters = network.named_parameters()
    return {n: (p.placements, tuple(p.to_local().shape)) for n, p in parameters if isinstance(p, DTensor)}


def with_wrong_gradients() -> dict[str, Any]:
    """The errors if the gradient of the head's input were taken for whole."""
    right = vocabulary_parallel.whole_input
    vocabulary_parallel.whole_input = lambda x, mesh, placement: x
    try:
        return compare(make, loss, batches(), Case({}))
    finally:
        vocabulary_parallel.whole_input = right


def adamw(network: Any) -> torch.optim.Optimizer:
    """The optimizer whose state goes into checkpoints."""
    return torch.optim.AdamW(decay_groups(network), lr=1e-2)


def exchanged(folder: Path) -> Any:
    """Load the checkpoint of one process into a network that is split twice, go on, and save that."""
    network = split(fresh(make, {}, seed=1), Case({}, shard=True))
    optimizer = adamw(network)
    load(folder / "one", network, optimizer)
    loaded = everything(network, optimizer)
    stepped(network, optimizer, loss, batches()[:1], 1)
    save(folder / "several", network, optimizer)
    return loaded, everything(network, optimizer)


def everything_at_once(folder: Path) -> dict[str, Any]:
    """One group of processes runs it all."""
    found = compared(CASES | HALF)
    found["documents"] = compare(make, loss_of_documents, batches(), Case({}))
    found["logits"] = compare(make, loss_of_logits, batches(), Case({"tie_embeddings": True}))
    found["wrong"] = with_wrong_gradients()
    found["ignored"], found["trained"], found["layouts"] = ignored_everywhere(), trained(), layouts()
    found["evaluated"] = {tied: evaluated(tied) for tied in (False, True)}
    found["exchanged"] = exchanged(folder)
    found["rank"] = mesh_of((2, 2))["tensor"].get_local_rank()
    return found
