"""A network as an ONNX graph: images in 0..1 to logits, or tokens and a cache of keys and values to logits."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from export.decoder_graph import DecoderGraph
from export.from_pixels import FromPixels
from export.onnx_layers import named_bytes
from export.onnx_operators import image_network, text_network
from lightning_modules.transformer.network import Transformer

LARGEST_FILE = 2**31 - 2**20
"""Bytes of weights that surely fit into one file: protobuf ends at 2 GiB."""

KNOWN = ("classes", "mean", "std", "image_size", "in_channels")
"""What an image model's reader must know of the run's data.json."""


def image_graph(
    network: nn.Module,
    data: Mapping[str, Any],
    dtype: torch.dtype = torch.float32,
    *,
    multiply_only: bool = False,
    convolve: bool = False,
) -> Any:
    """The `onnx.ModelProto` of a classifier with a free batch size.

    `data`: the run's data.json. `multiply_only`, `convolve`: see `image_network`.
    """
    exported = image_network(network, dtype, multiply_only, convolve)
    wrapped = FromPixels(exported, data["mean"], data["std"]).eval()
    example = torch.zeros(2, data["in_channels"], data["image_size"], data["image_size"])
    model = _trace(wrapped, (example,), ({0: Dim("batch")},), ["images"], ["logits"])
    facts = {name: json.dumps(data[name], ensure_ascii=False) for name in KNOWN}
    return _described(model, {"input": "images in 0..1 (B, C, H, W), RGB or grey", **facts})


def text_graph(
    network: Transformer,
    dtype: torch.dtype = torch.float32,
    embedding: torch.dtype = torch.float32,
    own_head: bool = False,
) -> Any:
    """The `onnx.ModelProto` of a transformer; batch, new tokens T and earlier tokens P >= 0 are free.

    `tokens` (B, T) and, for each layer i, `past_keys.i` and `past_values.i` (B, H_kv, P, head_dim) give `logits`
    (B, T, V) in fp32 and `present_keys.i`, `present_values.i` (B, H_kv, P + T, head_dim), the next call's past.
    `embedding`, `own_head`: see `text_network`.
    """
    exported = text_network(network, dtype, embedding, own_head)
    batch, new, past = Dim("batch"), Dim("tokens"), Dim("past")
    shape = (2, network.n_kv_heads, 3, network.head_dim)
    keys, values = ([torch.zeros(shape, dtype=dtype) for _ in network.blocks] for _ in range(2))
    dynamic = [{0: batch, 2: past} for _ in network.blocks]
    model = _trace(
        DecoderGraph(exported).eval(),
        (torch.zeros(2, 5, dtype=torch.long), keys, values),
        ({0: batch, 1: new}, dynamic, dynamic),
        ["tokens", *cache_names("past", network.n_layers)],
        ["logits", *cache_names("present", network.n_layers)],
    )
    return _described(model, {"max_sequence_length": str(network.max_sequence_length)})


def cache_names(when: str, layers: int) -> list[str]:
    """Names of the graph's tensors of keys and values; `when` is `past` (inputs) or `present` (outputs)."""
    return [f"{when}_{what}.{layer}" for what in ("keys", "values") for layer in range(layers)]


def save(model: Any, file: Path) -> list[str]:
    """Write `model`, with its weights in a second file where one would be too large; the names of the files.

    Raises:
        onnx.checker.ValidationError: it is no valid model.
    """
    import onnx

    large = weights_bytes(model) > LARGEST_FILE
    if large:
        stored = onnx.ModelProto()
        stored.CopyFrom(model)  # onnx takes the weights out of what it saves
        onnx.save(stored, file, save_as_external_data=True, location=f"{file.name}.data", size_threshold=1024)
    else:
        onnx.save(model, file)
    onnx.checker.check_model(str(file), full_check=True)
    return [file.name, f"{file.name}.data"] if large else [file.name]


def weights_bytes(model: Any) -> int:
    """Bytes of the weights that `model` holds."""
    return sum(named_bytes(model).values())


def _trace(
    module: nn.Module, example: tuple[Any, ...], dynamic: tuple[Any, ...], inputs: list[str], outputs: list[str]
) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="# The axis name")  # sizes that are one have one name, as is meant
        program = torch.onnx.export(
            module,
            example,
            dynamo=True,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=dynamic,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _name_as_in_the_network(model)
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        part.ClearField("metadata_props")  # lines of the source and paths of this machine
    return model


def _name_as_in_the_network(model: Any) -> None:
    """Weights get the names that they have in the network, which lies one level down in what was traced."""
    short = lambda name: name.removeprefix("network.")  # noqa: E731
    for tensor in model.graph.initializer:
        tensor.name = short(tensor.name)
    for node in model.graph.node:
        node.input[:] = [short(name) for name in node.input]
    for value in model.graph.value_info:
        value.name = short(value.name)


def _described(model: Any, facts: dict[str, str]) -> Any:
    import onnx

    onnx.helper.set_model_props(model, facts)
    return model
