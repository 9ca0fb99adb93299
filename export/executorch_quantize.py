"""8-bit quantization of a traced network for XNNPACK, by torchao's PT2E flow."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

RELU = (torch.ops.aten.relu.default, torch.ops.aten.relu_.default)
WEIGHTED = (torch.ops.aten.conv2d.default, torch.ops.aten.linear.default)


def quantize(program: Any, paths: Iterable[str], samples: Iterable[tuple[Tensor, ...]], dynamic: bool) -> Any:
    """The module of the exported `program` with the layers `paths` in 8 bits, a scale for each output channel.

    Weights are symmetric. Inputs have ranges from `samples`, inputs of the program, or with `dynamic` those of the
    values that come; then only linear layers are possible, and one sample is enough.
    """
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    wanted = set(paths)
    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    )
    # A layer is quantized together with its weight and the ReLU behind it, which belong to no layer.
    quantizer.set_filter_function(
        lambda node: node.op != "call_function" or node.target in RELU or _layer(node) in wanted
    )
    prepared = prepare_pt2e(program.module(), quantizer)
    with torch.inference_mode():
        for sample in samples:
            prepared(*sample)
    return convert_pt2e(prepared)


def quantized_weights(module: fx.GraphModule) -> Iterator[tuple[str, Tensor, int]]:
    """Each quantized layer's path, its weight in fp32 as the integers mean it, and bytes of integers and scales."""
    for node in module.graph.nodes:
        if node.target not in WEIGHTED:
            continue
        weight = node.args[1]
        if weight.op != "call_function" or "dequantize_per_channel" not in str(weight.target):
            continue
        values, scales = (_tensor(module, argument) for argument in weight.args[:2])
        shape = [-1] + [1] * (values.ndim - 1)
        yield _layer(node), values.float() * scales.float().view(shape), values.numel() + 4 * scales.numel()


def _tensor(module: fx.GraphModule, node: fx.Node) -> Tensor:
    found: Any = module
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found.detach()


def _layer(node: fx.Node) -> str:
    """Path of the innermost module that `node` comes from, in the network, which lies one level down."""
    stack = node.meta.get("nn_module_stack") or {"": ("", None)}
    path: str = list(stack.values())[-1][0]
    return path.removeprefix("L['self'].").removeprefix("network.")
