"""What the device at hand really does each second: products, attention, convolutions and memory traffic, by size."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from utilization.roofline import Curve, Roof

SECONDS = 0.03
"""Each size is repeated for so long; the lower quartile counts: what slows slower calls down is not the device."""
LONGEST_S = 0.5
"""Calls that are slower than this are not repeated: some formats are emulated, thousands of times slower."""
HELD_BYTES = 128 * 2**20
"""Results are kept until there are so many bytes of them, as a training step keeps its activations: fresh ones lie in
memory that must first be had from the system."""
COLD_BYTES = 64 * 2**20
"""Operands are taken in turn until so much lies between two uses, so that they come from memory."""

_CUBES = (32, 64, 128, 256, 512, 1024, 2048)
_ELEMENTS = (2**12, 2**16, 2**18, 2**20, 2**22, 2**24)
_ATTENTION = ((1, 4, 64, 64), (4, 4, 256, 64), (4, 8, 512, 64))  # B, H, T, D
_CONVOLUTIONS = ((4, 64, 8, 64), (16, 64, 16, 64), (32, 96, 27, 256))  # B, channels, side, channels out
_NARROW = ((4, 3, 16, 16), (16, 8, 16, 32), (64, 12, 28, 48))

Call = Callable[[], object]


def calibrate(device: torch.device, dtypes: dict[str, torch.dtype]) -> Roof:
    """Measure the roof of `device` in the number formats of `dtypes`, with the threads that torch uses now.

    About five seconds for two formats. Formats that the device cannot compute in are left out.
    """
    curves: dict[str, Curve] = {}
    with torch.random.fork_rng(devices=[]):
        for name, dtype in dtypes.items():
            measured = _arithmetic(device, dtype) | _traffic(device, dtype)
            curves |= {f"{kind} {name}": curve for kind, curve in measured.items() if curve}
    return Roof(curves, _overhead(device))


def stream_bandwidth(device: torch.device) -> float:
    """Bytes/s of adding arrays of 64 MiB into a fresh one, in a tenth of a second."""
    count = 2**24
    operands = [torch.ones(count, device=device) for _ in range(2)]
    [(_, rate)] = _curve([(3.0 * 4 * count, lambda: operands[0] + operands[1])], device)
    return rate


def _arithmetic(device: torch.device, dtype: torch.dtype) -> dict[str, Curve]:
    """Curves of FLOP/s by FLOPs; a backward pass of attention does five products against two, of a convolution two."""
    curves: dict[str, Curve] = {"matmul": _curve([_product(size, device, dtype) for size in _CUBES], device)}
    for kind, make, shapes, passes in (
        ("attention", _attention, _ATTENTION, 2.5),
        ("convolution", _convolution, _CONVOLUTIONS, 2.0),
        ("narrow_convolution", _convolution, _NARROW, 2.0),
    ):
        made = [make(shape, device, dtype) for shape in shapes]
        curves[kind] = _curve([(flops, forward) for flops, forward, _ in made], device)
        curves[f"{kind}_backward"] = _curve([(passes * flops, backward) for flops, _, backward in made], device)
    return curves


def _product(size: int, device: torch.device, dtype: torch.dtype) -> tuple[float, Call]:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2.0 * size**3, lambda: a @ b


def _attention(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> tuple[float, Call, Call]:
    """FLOPs of the forward pass, and both passes."""
    q, k, v = (torch.randn(*shape, device=device).to(dtype).requires_grad_() for _ in range(3))

    def forward() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    out = forward()
    gradient = torch.ones_like(out)
    flops = 4.0 * shape[0] * shape[1] * shape[2] ** 2 * shape[3]
    return flops, forward, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def _convolution(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> tuple[float, Call, Call]:
    """FLOPs of the forward pass, and both passes."""
    batch, channels, side, out_channels = shape
    x = torch.randn(batch, channels, side, side, device=device).to(dtype).requires_grad_()
    weight = torch.randn(out_channels, channels, 3, 3, device=device).to(dtype).requires_grad_()

    def forward() -> Tensor:
        return F.conv2d(x, weight, padding=1)

    out = forward()
    gradient = torch.ones_like(out)
    flops = 2.0 * weight.numel() * batch * side**2
    return flops, forward, lambda: torch.autograd.grad(out, (x, weight), gradient, retain_graph=True)


def _traffic(device: torch.device, dtype: torch.dtype) -> dict[str, Curve]:
    other = torch.bfloat16 if dtype == torch.float32 else torch.float32
    size = dtype.itemsize
    kinds: dict[str, tuple[float, Callable[[Tensor], object]]] = {
        "stream": (3 * size, lambda x: x + x),
        "in_place": (3 * size, lambda x: x.mul_(0.999)),
        "function": (2 * size, F.silu),
        "reduction": (size, lambda x: x.sum()),
        "cast": (size + other.itemsize, lambda x: x.to(other)),
        "window": (size + (size + 8) / 4, _pool),  # the positions of the maxima are 64-bit integers
    }
    curves: dict[str, Curve] = {}
    for kind, (bytes_each, function) in kinds.items():
        points = []
        for count in _ELEMENTS:
            copies = max(2, min(16, COLD_BYTES // (count * size)))
            operands = [torch.randn(count, device=device).abs_().to(dtype) for _ in range(copies)]
            points.append((bytes_each * count, _in_turn(function, operands)))
        curves[kind] = _curve(points, device)
    return curves


def _pool(x: Tensor) -> object:
    return F.max_pool2d(x.view(-1, 16, 8, 8), 2, return_indices=True)


def _in_turn(function: Callable[[Tensor], object], operands: list[Tensor]) -> Call:
    turn = 0

    def call() -> object:
        nonlocal turn
        turn += 1
        return function(operands[turn % len(operands)])

    return call


def _curve(points: list[tuple[float, Call]], device: torch.device) -> Curve:
    return [(size, size / seconds) for size, call in points if (seconds := _seconds(call, device))]


def _overhead(device: torch.device) -> float:
    """Seconds of a call that computes next to nothing."""
    x = torch.ones(1, device=device)
    return _seconds(lambda: x + x, device) or 0.0


def _seconds(call: Call, device: torch.device) -> float | None:
    """Lower quartile of a call's seconds; None if the device cannot do it."""
    try:
        call()
    except RuntimeError:
        return None
    times: list[float] = []
    results: list[object] = []
    held = 0
    until = time.perf_counter() + SECONDS
    while (len(times) < 4 and sum(times) < LONGEST_S) or time.perf_counter() < until:
        began = time.perf_counter()
        result = call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
        results.append(result)
        held += sum(leaf.nbytes for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        if held > HELD_BYTES:
            results.clear()
            held = 0
    return sorted(times)[len(times) // 4]
