"""A network's modules in forms that become the ONNX operators that runtimes have kernels and quantizers for."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.decoder_graph import StoredEmbedding
from lightning_modules.alexnet import AlexNet
from lightning_modules.alexnet.local_response_norm import ALPHA, SIZE, K, LocalResponseNorm
from lightning_modules.transformer.network import Transformer
from lightning_modules.transformer.norm import RMSNorm, rms_norm

BETA = 0.75
"""Exponent of the local response normalisation (Krizhevsky, Sutskever & Hinton, NIPS 2012, section 3.3)."""


class OnnxLocalResponseNorm(nn.Module):
    """The layer as ONNX's own operator LRN, in fp32; the operator divides alpha by the window's size."""

    def __init__(self, tower_channels: int) -> None:
        super().__init__()
        self.tower_channels = tower_channels

    def forward(self, activation: Tensor) -> Tensor:
        """Normalise `activation` (B, C, H, W); each tower becomes an image of its own, for towers exchange nothing."""
        towers = activation.float().unflatten(1, (-1, self.tower_channels)).flatten(0, 1)
        attributes: dict[str, Any] = {"size": SIZE, "alpha": ALPHA * SIZE, "beta": BETA, "bias": K}
        normalised = torch.onnx.ops.symbolic("LRN", (towers,), attributes, dtype=towers.dtype, shape=towers.shape)
        untied = normalised.unflatten(0, (-1, activation.shape[1] // self.tower_channels)).flatten(1, 2)
        return untied.to(activation.dtype)


class ConvolvedNorm(nn.Module):
    """The layer without its constant factor, in fp32: the sum over neighbouring channels is a 1 x 1 convolution.

    On a CPU ONNX Runtime's LRN computes one power at a time and takes longer than all convolutions in 8 bits; this
    takes an eighth of that. a / (k + alpha * S)^3/4 = k^-3/4 * a / (1 + alpha / k * S)^3/4, and a pool of the largest
    commutes with the factor: `ScaledPool` multiplies a fourth of the values, and between the pool and the next
    layer's rounding to 8 bits a multiplication keeps ONNX Runtime from pooling in integers, which is far slower.
    """

    band: Tensor

    def __init__(self, tower_channels: int, channels: int) -> None:
        super().__init__()
        self.towers = channels // tower_channels
        number = torch.arange(tower_channels)
        near = (number.unsqueeze(1) - number).abs() <= SIZE // 2
        band = (near * (ALPHA / K)).repeat(self.towers, 1)
        self.register_buffer("band", band.view(channels, tower_channels, 1, 1))
        self.register_buffer("one", torch.ones(channels))

    def forward(self, activation: Tensor) -> Tensor:
        """Normalise `activation` (B, C, H, W), k^3/4 times too large."""
        wide = activation.float()
        total = F.conv2d(wide * wide, self.band, self.get_buffer("one"), groups=self.towers)
        root = total.sqrt()
        return (wide / (root * root.sqrt())).to(activation.dtype)


class ScaledPool(nn.Module):
    """A pool of the largest values, and the factor that `ConvolvedNorm` left to it."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, activation: Tensor) -> Tensor:
        """Pool (B, C, H, W)."""
        return self.pool(activation) * K**-BETA


class OnnxLinear(nn.Module):
    """A linear layer whose weight is stored (in, out): one MatMul, with no transposition beside it."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight`: (out, in), as `nn.Linear` has it."""
        super().__init__()
        self.weight = nn.Parameter(weight.detach().T.contiguous(), requires_grad=False)
        self.bias = bias

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """(..., in) to (..., out); `targets` is there for the head, which never has any here."""
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


class OnnxNorm(nn.Module):
    """Root-mean-square normalisation in fp32, weight included, whatever the network's number format."""

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.eps = norm.eps
        self.weight = nn.Parameter(norm.weight.detach().float(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D), in the format of `x`."""
        return rms_norm(x.float(), self.weight, self.eps).to(x.dtype)


class OnnxTiedHead(nn.Module):
    """A head that reads the embedding's very table: Gemm transposes as it multiplies, so no second one is stored."""

    def forward(self, hidden: Tensor, weight: Tensor, targets: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of hidden states (B, T, D), with the table (V, D)."""
        rows = hidden.flatten(0, 1)
        table = weight.to(hidden.dtype)
        shape = (rows.shape[0], table.shape[0])
        logits = torch.onnx.ops.symbolic("Gemm", (rows, table), {"transB": 1}, dtype=rows.dtype, shape=shape)
        return logits.unflatten(0, hidden.shape[:2])


def image_network(network: nn.Module, dtype: torch.dtype, multiply_only: bool, convolve: bool) -> nn.Module:
    """A copy of a classifier in `dtype`, with normalisation across channels as an operator of ONNX.

    `multiply_only`: its linear layers become MatMul and Add, which all quantizers take, instead of Gemm. `convolve`:
    normalise by convolutions instead, as `ConvolvedNorm` says.
    """
    exported = copy.deepcopy(network).to(dtype)
    for path, module in list(exported.named_modules()):
        if isinstance(module, LocalResponseNorm) and not convolve:
            exported.set_submodule(path, OnnxLocalResponseNorm(module.tower_channels))
        elif multiply_only and isinstance(module, nn.Linear):
            exported.set_submodule(path, OnnxLinear(module.weight, module.bias))
    if convolve and isinstance(exported, AlexNet):
        # Each of its normalisations is followed by the one pool, which is used nowhere else.
        for path, layer in (("norm1", exported.conv1), ("norm2", exported.conv2)):
            norm = network.get_submodule(path)
            assert isinstance(norm, LocalResponseNorm)
            exported.set_submodule(path, ConvolvedNorm(norm.tower_channels, layer.out_channels))
        exported.set_submodule("pool", ScaledPool(exported.pool))
    return exported


def text_network(network: Transformer, dtype: torch.dtype, embedding: torch.dtype, own_head: bool) -> Transformer:
    """A copy of a transformer in `dtype`, with its table of tokens stored in `embedding`.

    `own_head`: a head that is tied to that table gets a weight of its own.
    """
    exported = copy.deepcopy(network).to(dtype)
    for path, module in list(exported.named_modules()):
        if isinstance(module, nn.Linear):
            exported.set_submodule(path, OnnxLinear(module.weight))
        elif isinstance(module, RMSNorm):
            exact = network.get_submodule(path)
            assert isinstance(exact, RMSNorm)
            exported.set_submodule(path, OnnxNorm(exact))
    if network.tie_embeddings and own_head:
        exported.tie_embeddings = False
        exported.set_submodule("head", OnnxLinear(exported.embedding.weight))
    elif network.tie_embeddings:
        exported.set_submodule("head", OnnxTiedHead())
    exported.set_submodule("embedding", StoredEmbedding(exported.embedding.weight, embedding))
    return exported
