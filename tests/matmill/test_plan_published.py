"""What others have published follows from a plan of the same run. Each test names its source."""

from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor

from lightning_modules.alexnet.local_response_norm import ALPHA, SIZE, K, LocalResponseNorm
from matmill.compose import compose
from matmill.plan import make_plan

GB = 1e9


def _plan(*overrides: str) -> dict[str, Any]:
    words = ["measure=false", "advise=false", *overrides]
    return make_plan(compose("plan", words), words)


@pytest.fixture(scope="module")
def llama_405b() -> dict[str, Any]:
    """Llama 3 405B (arXiv:2407.21783): 15.6 T tokens, sequences of 8192, at 400 TFLOP/s on H100s."""
    return _plan(
        "model=llama3_405b", "data.sequence_length=8192", "data.micro_batch_size=1", "data.global_batch_size=2048",
        "tokens=15.6e12", "hardware=h100_sxm", "assume_flops=400e12", "precision=bf16_mixed",
    )  # fmt: skip


def test_llama_405b_takes_its_published_flops(llama_405b: dict[str, Any]) -> None:
    """arXiv:2407.21783, section 3.2.1: 3.8e25 FLOPs, which is plain 6 N D; with attention it is 4.1e25."""
    assert llama_405b["parameters"] == 405_853_388_800
    assert llama_405b["flops"]["six_n_d"] == pytest.approx(3.8e25, rel=0.01)
    assert llama_405b["flops"]["total"] == pytest.approx(4.1e25, rel=0.01)


def test_its_weights_take_810_gb_in_16_bits(llama_405b: dict[str, Any]) -> None:
    """Meta's model card says 810 GB for BF16."""
    assert llama_405b["decode"]["weights_bytes"] == pytest.approx(810 * GB, rel=0.01)


def test_one_h100_would_take_3000_years_and_16384_two_months(llama_405b: dict[str, Any]) -> None:
    """From the published FLOPs and the published 380 to 430 TFLOP/s a GPU (table 4 of arXiv:2407.21783)."""
    years = llama_405b["assumed"]["one_device_seconds_six_n_d"] / (365.25 * 86400)
    assert years == pytest.approx(3000, rel=0.02)
    days = years * 365.25 / 16384
    assert 55 < days < 70


def test_466_interruptions_in_54_days_are_2_78_hours_apart() -> None:
    """arXiv:2407.21783, section 3.3.4; the default of `device_mtbf_hours` is that rate of one GPU."""
    plan = _plan("hardware=h100_sxm", "devices=16384", "strategy=ddp", "data.global_batch_size=16384",
                 "data.micro_batch_size=1", "data.sequence_length=64")  # fmt: skip
    assert plan["failures"]["mtbf_seconds"] / 3600 == pytest.approx(54 * 24 / 466, rel=1e-3)
    assert plan["goodput"] == pytest.approx(0.871, abs=0.001)  # stalls of 30 s, restarts of 10 minutes


def test_decoding_llama_8b_on_an_h100_is_bound_by_bandwidth() -> None:
    """16 GB at 3.35 TB/s are 4.8 ms a token, 0.016 ms of arithmetic: about 200 tokens/s for one sequence."""
    plan = _plan("model=llama3_8b", "hardware=h100_sxm", "data.micro_batch_size=1", "decode_context=1")
    decode = plan["decode"]
    assert decode["weights_bytes"] == pytest.approx(16 * GB, rel=0.01)
    assert decode["seconds_per_token_by_bandwidth"] == pytest.approx(4.8e-3, rel=0.01)
    assert decode["seconds_per_token_by_arithmetic"] == pytest.approx(0.016e-3, rel=0.02)
    assert decode["tokens_per_second"]["16 bits"]["1"] == pytest.approx(208.6, rel=0.01)
    assert decode["tokens_per_second"]["4 bits"]["1"] > 3 * decode["tokens_per_second"]["16 bits"]["1"]
    assert decode["tokens_per_second"]["16 bits"]["32"] > 25 * decode["tokens_per_second"]["16 bits"]["1"]


@pytest.mark.parametrize(("strategy", "devices", "published"), [("single", 1, 2.53), ("tensor", 2, 1.31)])
def test_alexnet_of_2012_at_batch_128(
    strategy: str, devices: int, published: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Krizhevsky et al. 2012: one network on one card, or a tower on each of two with 3 GB.

    The figures are counted with torch's LRN, which keeps more for its backward pass than ours does.
    """
    words = ["experiment=alexnet_imagenet", "data.path=/not/read", "model.num_classes=1000", "precision=fp32",
             "hardware=gtx_580_3gb", "data.global_batch_size=128", "data.micro_batch_size=128",
             f"strategy={strategy}", f"devices={devices}"]  # fmt: skip
    ours = _plan(*words)["memory"]

    def torchs(self: LocalResponseNorm, x: Tensor) -> Tensor:
        return F.local_response_norm(x, SIZE, ALPHA * SIZE, 0.75, K)

    monkeypatch.setattr(LocalResponseNorm, "forward", torchs)
    theirs = _plan(*words)["memory"]
    assert theirs["peak_bytes"] == pytest.approx(published * GB, rel=0.01)
    assert ours["peak_bytes"] < theirs["peak_bytes"]
    # Both fit by this count. What did not fit in 2012 would be one network whose activations all keep a gradient.
    assert ours["fits"] is True
    assert (ours["without_reuse_bytes"] > 3 * 2**30) is (devices == 1)


def test_llama_8b_on_eight_h100s_needs_what_was_measured() -> None:
    """torchtitan's benchmarks/llama3_h100_202412_torchtitan.md: FSDP on 8 GPUs, batch 2, selective checkpointing:
    5,762 tokens/s a GPU and 82.4 GiB; its checkpointing keeps other results than ours, hence a wide margin."""
    plan = _plan(
        "model=llama3_8b", "hardware=h100_sxm", "data.sequence_length=8192", "strategy=fsdp", "devices=8",
        "strategy.activation_checkpointing=selective", "data.micro_batch_size=2", "data.global_batch_size=16",
        "precision=bf16_mixed", "conventions=true",
    )  # fmt: skip
    low, high = plan["time"]["units_per_second"]
    assert low < 8 * 5762 < high
    assert plan["memory"]["peak_bytes"] == pytest.approx(82.4 * 2**30, rel=0.2)
    by_formula = {row["formula"]: row["per_token"] * 5762 / 989e12 for row in plan["conventions"]}
    assert by_formula["6 N_matmul + 12 L d T"] == pytest.approx(0.337, abs=0.0005)
    assert by_formula["6 N + 12 L d T"] == pytest.approx(0.356, abs=0.0005)
    assert by_formula["6 N"] == pytest.approx(0.281, abs=0.0005)
