"""The operator roofline: the slower of arithmetic and traffic, at the rate of the operation's kind, format and size."""

import pytest
import torch

from utilization.operations import Operation
from utilization.roofline import Roof, ideal_roof, interpolated, roofline


def _operation(kind: str, flops: int, size: int, dtype: torch.dtype = torch.float32, name: str = "mm") -> Operation:
    operator = torch.ops.aten.mm.default
    return Operation(name, operator, (), {}, kind, dtype, flops, size, {"forward": 2.0})  # type: ignore[arg-type]


def test_arithmetic_counts_above_the_ridge_and_traffic_below_it() -> None:
    roof = ideal_roof({"fp32": 1e12}, bandwidth=1e9)
    assert roof.seconds(_operation("matmul", flops=10**12, size=10**6)) == pytest.approx(1.0)
    assert roof.seconds(_operation("matmul", flops=10**6, size=10**9)) == pytest.approx(1.0)


def test_each_format_has_its_own_rate_and_an_unknown_one_is_said() -> None:
    roof = ideal_roof({"fp32": 1e12, "bf16": 4e12}, bandwidth=1e15)
    slow, fast = (_operation("matmul", 10**12, 1, dtype) for dtype in (torch.float32, torch.bfloat16))
    assert roofline([slow], roof).total == pytest.approx(4 * roofline([fast], roof).total)
    unknown = roofline([_operation("matmul", 10**12, 1, torch.float8_e4m3fn)], roof)
    assert unknown.unknown == {"mm": 2.0}
    assert unknown.total == 0


def test_backward_passes_and_functions_go_by_their_own_curves() -> None:
    curves = {
        "matmul fp32": [(1.0, 8e9)],
        "convolution_backward fp32": [(1.0, 2e9)],
        "stream fp32": [(1.0, 8e9)],
        "function fp32": [(1.0, 1e9)],
    }
    roof = Roof(curves)
    assert roof.seconds(_operation("convolution", 10**9, 0, name="convolution")) == pytest.approx(1 / 8)
    assert roof.seconds(_operation("convolution", 10**9, 0, name="convolution_backward")) == pytest.approx(1 / 2)
    assert roof.seconds(_operation("memory", 0, 10**9, name="silu")) == pytest.approx(1.0)
    assert roof.seconds(_operation("memory", 0, 10**9, name="mul")) == pytest.approx(1 / 8)


def test_views_take_no_time_and_every_other_call_its_overhead() -> None:
    roof = Roof({"stream fp32": [(1.0, 1e9)], "matmul fp32": [(1.0, 1e9)]}, overhead=1e-6)
    assert roof.seconds(_operation("view", 0, 0)) == 0
    assert roof.seconds(_operation("memory", 0, 1, name="add")) == pytest.approx(1e-6 + 1e-9)


def test_rates_between_sizes_lie_on_a_line_of_logarithms() -> None:
    curve = [(1e3, 1e9), (1e5, 1e11)]
    assert interpolated(curve, 1e4) == pytest.approx(1e10)
    assert interpolated(curve, 1) == 1e9
    assert interpolated(curve, 1e9) == 1e11
