"""What follows from a prediction: the run at an assumed rate, its failures, other counts of its FLOPs, its decoding."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from matmill.planned_hardware import PlannedHardware
from matmill.planned_step import PlannedStep
from utilization import checkpoint_interval as interval
from utilization.conventions import CONVENTIONS
from utilization.decoder import Decoder, decoder_sizes
from utilization.inference import (
    Accelerator,
    balanced_batch,
    decode_tokens_per_second,
    kv_bytes_per_token,
    prefill_seconds,
    weight_bytes,
)

WEIGHT_FORMATS: dict[str, dict[str, float]] = {
    "16 bits": {"bits": 16},
    "8 bits": {"bits": 8, "group": 32, "scale_bits": 16},
    "4 bits": {"bits": 4, "group": 32, "scale_bits": 16},
}
"""Weights and their scales; 8 and 4 bits as GGUF's q8_0 and q4_0 store them."""
BATCHES = (1, 8, 32, 128)


def outlook(
    config: DictConfig, planned: PlannedStep, hardware: PlannedHardware, plan: Mapping[str, Any]
) -> dict[str, Any]:
    """The parts of plan.json that need no step to be run: assumed, failures, checkpoint, goodput, decode."""
    decoder = decoder_sizes(planned.step.network())
    return {
        "assumed": _assumed(config, plan),
        **_failures(config, plan),
        "conventions": _conventions(decoder, planned, plan) if config.conventions else None,
        "decode": _decode(config, decoder, planned, hardware),
    }


def _assumed(config: DictConfig, plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Seconds of the run if every device reached `assume_flops`: by the counted FLOPs and by plain 6 N D."""
    rate, flops = config.assume_flops, plan["flops"]
    if rate is None or flops["total"] is None:
        return None
    return {
        "flops_per_second": rate,
        "total_seconds": flops["total"] / rate / plan["devices"],
        "total_seconds_six_n_d": None if flops["six_n_d"] is None else flops["six_n_d"] / rate / plan["devices"],
        "one_device_seconds_six_n_d": None if flops["six_n_d"] is None else flops["six_n_d"] / rate,
    }


def _failures(config: DictConfig, plan: Mapping[str, Any]) -> dict[str, Any]:
    """How often the run must expect to be interrupted, how often to save, and what is then left of the time."""
    mtbf = interval.scaled_to_devices(config.device_mtbf_hours * 3600, 1, plan["devices"])
    save, restart = config.save_stall_seconds, config.restart_seconds
    best = interval.best_goodput(save=save, restart=restart, mtbf=mtbf)
    assumed = _assumed(config, plan)
    useful = plan["time"]["total_seconds"] if assumed is None else [assumed["total_seconds"]]
    expected = (
        None if useful is None else [interval.expected_failures(each, goodput=best, mtbf=mtbf) for each in useful]
    )
    return {
        "failures": {"mtbf_seconds": mtbf, "expected": expected, "restart_seconds": restart},
        "checkpoint": {
            "interval_seconds": interval.optimum_interval(save, mtbf),
            "young_seconds": interval.young_interval(save, mtbf),
            "daly_seconds": interval.daly_interval(save, mtbf),
            "stall_seconds": save,
            "bytes": plan["memory"]["state_bytes"] * plan["devices"],
        },
        "goodput": best,
    }


def _conventions(decoder: Decoder | None, planned: PlannedStep, plan: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """FLOPs of a token, and the MFU of the predicted step, by every convention in use."""
    if decoder is None:
        return None
    context = int(planned.step.batch["tokens"].shape[1])
    peak, rate = plan["hardware"]["peak_flops_per_second"], plan["time"]["units_per_second"]
    rows = []
    for convention in CONVENTIONS:
        flops = convention.flops_per_token(decoder, context)
        mfu = None if peak is None or rate is None else [flops * each / plan["devices"] / peak for each in rate]
        rows.append({"formula": convention.formula, "used_by": convention.used_by, "per_token": flops, "mfu": mfu})
    return rows


def _decode(
    config: DictConfig, decoder: Decoder | None, planned: PlannedStep, hardware: PlannedHardware
) -> dict[str, Any] | None:
    """Tokens/s of the trained model on one device by the roofline, for formats of the weights and batch sizes."""
    peak = hardware.peak.get("bf16", hardware.peak.get("fp32"))
    if decoder is None:
        return None
    context = config.decode_context or int(planned.step.batch["tokens"].shape[1])
    kv_bytes = kv_bytes_per_token(decoder)
    weights = {name: weight_bytes(decoder, **how) for name, how in WEIGHT_FORMATS.items()}  # type: ignore[arg-type]
    known = hardware.memory_bandwidth is not None and peak is not None
    chip = Accelerator(hardware.memory_bandwidth or 1.0, peak or 1.0)
    return {
        "weights_bytes": weights["16 bits"],
        "weights_bytes_by_format": weights,
        "context": context,
        "kv_bytes_per_token": kv_bytes,
        "kv_bytes": kv_bytes * context,
        "seconds_per_token_by_bandwidth": weights["16 bits"] / chip.bandwidth if known else None,
        "seconds_per_token_by_arithmetic": 2 * decoder.parameters / chip.peak if known else None,
        "tokens_per_second": {
            name: {
                str(batch): decode_tokens_per_second(decoder, chip, weights=size, batch=batch, context=context)
                for batch in BATCHES
            }
            for name, size in weights.items()
        }
        if known
        else None,
        "balanced_batch": balanced_batch(decoder, chip, weights=weights["16 bits"], context=context) if known else None,
        "first_token_seconds": prefill_seconds(decoder, chip, weights=weights["16 bits"], prompt=context)
        if known
        else None,
    }
