"""Activation checkpointing: what a forward pass keeps for the backward pass and what is computed again."""

import types
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Recompute = Literal["none", "full", "selective"]

aten = torch.ops.aten

KEPT = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.convolution.default,
    aten._scaled_mm.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    torch.ops._c10d_functional.all_gather_into_tensor.default,
    torch.ops._c10d_functional.all_reduce.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}
"""Operators whose results `selective` keeps: those that are expensive to repeat, in arithmetic or communication. What
lies between (norms, rotary embedding, activations, dropout) is cheap to compute again and holds most of the memory
(Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 5)."""


def recompute_blocks(blocks: list[nn.Module], mode: Recompute) -> None:
    """Checkpoint the forward of each block, in place and without renaming anything.

    `full` keeps a block's inputs only and runs its forward again; `selective` also keeps the results of matrix
    products, convolutions, attention and collectives.
    """
    forwards = {"full": _forward_full, "selective": _forward_selective}
    for block in blocks if mode != "none" else []:
        # A bound method goes with its block: a copy of the network recomputes the copy's blocks.
        block.forward = types.MethodType(forwards[mode], block)


def _forward_full(self: nn.Module, *inputs: Any, **named: Any) -> Any:
    return checkpoint(_own_forward(self), *inputs, use_reentrant=False, **named)


def _forward_selective(self: nn.Module, *inputs: Any, **named: Any) -> Any:
    return checkpoint(_own_forward(self), *inputs, use_reentrant=False, context_fn=_selective_contexts, **named)


def _own_forward(module: nn.Module) -> Callable[..., Any]:
    """The forward of the module's class, looked up late: sharding and splitting give a module another class."""

    def forward(*inputs: Any, **named: Any) -> Any:
        return type(module).forward(module, *inputs, **named)

    return forward


def _selective_contexts() -> Any:
    return create_selective_checkpoint_contexts(_policy)


def _policy(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in KEPT else CheckpointPolicy.PREFER_RECOMPUTE
