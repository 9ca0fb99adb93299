"""A step recorded on fake tensors is the step that runs: its FLOPs, its bytes, its communication."""

from pathlib import Path
from typing import Any

import lightning.pytorch as L
import pytest
import torch

from matmill import assemble, extrapolate
from matmill.compose import compose
from matmill.measured_step import MeasuredStep
from matmill.planned_hardware import planned_hardware
from matmill.planned_step import PlannedStep, planned_step
from matmill.predicted_memory import with_buckets
from matmill.step_record import StepRecord, record_step

TINY = ("model=transformer_1m", "data.sequence_length=32", "data.micro_batch_size=2", "data.global_batch_size=4")


def _planned(*overrides: str) -> PlannedStep:
    words = dict(word.split("=", 1) for word in overrides)  # a later one replaces an earlier one
    config = compose("plan", [f"{key}={value}" for key, value in words.items()])
    return planned_step(config, planned_hardware(config, thorough=False))


def _record(*overrides: str) -> StepRecord:
    planned = _planned(*TINY, *overrides)
    return with_buckets(record_step(planned.step), planned)


def _per_token(planned: PlannedStep) -> float:
    return record_step(planned.step).flops.model * planned.tensor / planned.slots


def _closed_form(planned: PlannedStep) -> int:
    """6 N_matmul + 12 L d T of a token; PaLM, arXiv:2204.02311, appendix B."""
    network = planned.step.network()
    embedding = 0 if network.tie_embeddings else network.embedding.weight.numel()
    matmul = sum(p.numel() for p in network.parameters() if p.ndim > 1) - embedding
    length = planned.step.batch["tokens"].shape[1]
    return 6 * matmul + 12 * network.n_layers * network.n_heads * network.head_dim * length


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("strategy.activation_checkpointing=full",),
        ("strategy.compile=true",),
        ("strategy=fsdp", "devices=2"),
        ("strategy=fsdp_tensor", "devices=4", "strategy.tensor=2", "strategy.activation_checkpointing=selective"),
        ("precision=bf16_true",),
    ],
    ids=" ".join,
)
def test_model_flops_are_the_closed_form_however_the_network_is_laid_out(overrides: tuple[str, ...]) -> None:
    planned = _planned(*TINY, *overrides)
    assert _per_token(planned) == _closed_form(planned)


def test_frozen_layers_save_the_gradients_of_their_weights() -> None:
    """A frozen matrix still passes gradients on: a third of its FLOPs are saved, not two."""
    planned = _planned(*TINY)
    build = planned.step.module.build_network
    frozen = 0

    def half_frozen() -> Any:
        nonlocal frozen
        network = build()
        block = network.blocks[-1]
        frozen = sum(p.numel() for p in block.parameters() if p.ndim > 1)
        block.requires_grad_(False)
        return network

    before = _per_token(planned)
    planned.step.module.build_network = half_frozen  # type: ignore[method-assign]
    assert _per_token(planned) == before - 2 * frozen


def test_recomputation_is_executed_and_not_the_models() -> None:
    plain, full = _record(), _record("strategy.activation_checkpointing=full")
    assert full.flops.model == plain.flops.model
    assert full.flops.hardware > plain.flops.hardware
    assert full.peaks["forward"].parts["activations"] < plain.peaks["forward"].parts["activations"]


def test_accumulation_repeats_a_micro_batch_and_not_the_optimizer() -> None:
    once, four = _record("data.global_batch_size=2"), _record("data.global_batch_size=8")
    calls = [
        {phase: sum(o.calls.get(phase, 0.0) for o in found.operations if o.flops) for phase in ("forward", "backward")}
        for found in (once, four)
    ]
    assert calls[1] == {phase: 4 * count for phase, count in calls[0].items()}
    assert once.flops.model == four.flops.model  # of one micro-batch


def test_fsdp_shards_what_stays_between_steps_and_ddp_keeps_buckets() -> None:
    single, sharded, ddp = _record(), _record("strategy=fsdp", "devices=2"), _record("strategy=ddp", "devices=2")
    assert sharded.state["weights"] == single.state["weights"] // 2
    assert ddp.state["gradient_buckets"] == single.state["weights"]
    assert sharded.sent["all_gather", "shard"] > 0
    # A ring sends 2 (n - 1) / n of what it sums: with two devices as many bytes as there are gradients.
    assert ddp.sent["all_reduce", "replicate"] == single.state["weights"]


@pytest.mark.parametrize(
    "overrides",
    [("precision=fp32",), ("strategy=fsdp", "devices=2", "strategy.activation_checkpointing=full")],
    ids=" ".join,
)
def test_a_deep_network_follows_from_two_shallow_ones_to_the_byte(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = _planned(*TINY, "model.n_layers=8", *overrides)
    whole = record_step(planned.step)
    monkeypatch.setattr(extrapolate, "DIRECT", 0)
    guessed = extrapolate.record(planned.step)
    assert guessed.flops == whole.flops
    assert guessed.state == whole.state
    assert {phase: peak.bytes for phase, peak in guessed.peaks.items()} == {
        phase: peak.bytes for phase, peak in whole.peaks.items()
    }
    assert guessed.sent == pytest.approx(whole.sent)
    for total in ("flops", "bytes"):
        assert sum(getattr(o, total) * o.count for o in guessed.operations) == pytest.approx(
            sum(getattr(o, total) * o.count for o in whole.operations)
        )


@pytest.mark.parametrize(
    "overrides",
    [
        (*TINY, "precision=fp32"),
        (*TINY, "precision=bf16_mixed", "strategy.activation_checkpointing=selective"),
        (*TINY, "precision=bf16_true", "optimizer=adamw_8bit"),
        (*TINY, "precision=fp8_tensorwise"),
        ("experiment=alexnet_mnist", "precision=fp32", "data.global_batch_size=8", "data.micro_batch_size=8"),
    ],
    ids=lambda words: " ".join(words[-2:]),
)
def test_predicted_memory_is_what_the_allocator_gave(overrides: tuple[str, ...], tmp_path: Path) -> None:
    """Between steps exactly; at the peak within the scratch that convolutions allocate inside of their kernels."""
    words = [*overrides, f"run_dir={tmp_path}", "checkpoint.every_steps=null", "trainer.validate_every_steps=null"]
    config = compose("plan", words)
    planned = planned_step(config, planned_hardware(config, thorough=False))
    predicted = record_step(planned.step)
    data, module = assemble.build_data(config), assemble.build_module(config)
    measured = MeasuredStep(warm_up=2, timed=1)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy=assemble.build_strategy(config, 1),
        plugins=[assemble.build_precision(config)],
        max_steps=measured.steps,
        max_epochs=-1,
        limit_val_batches=0,
        logger=False,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[measured],
    )
    data.max_steps = measured.steps
    trainer.fit(module, datamodule=data)
    assert sum(predicted.state.values()) == measured.state_bytes
    assert max(peak.bytes for peak in predicted.peaks.values()) == pytest.approx(measured.peak_bytes, rel=0.03)


def test_recording_leaves_the_process_as_it_was() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    _record("strategy=fsdp", "devices=2")
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.distributed.is_initialized()
    assert type(torch.ones(1)) is torch.Tensor
