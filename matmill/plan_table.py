"""Shows plans to people: one plan in sections, or several variants side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from matmill.quantities import UNKNOWN, count, duration, share, size

WIDE = 160
SPEAKABLE_FAILURES = 0.01
"""Fewer failures than these are no subject for a run on one device."""

Row = tuple[str, str]


def show(plan: Mapping[str, Any], config: DictConfig) -> None:
    """Print one plan."""
    hardware = plan["hardware"]
    where = f"{plan['devices']} x {hardware['name']}" if plan["devices"] > 1 else hardware["name"]
    table = Table(title=f"plan: {plan['name']} on {where}", title_justify="left", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for section in (_arithmetic, _memory, _time, _failures, _decode):
        for name, value in section(plan):
            table.add_row(name, value)
        table.add_section()
    console = Console(markup=False, emoji=False)  # names are shown as they are
    console.print(table)
    if plan.get("conventions"):
        console.print(_conventions(plan))
    for note in _notes(plan):
        console.print(note, highlight=False, soft_wrap=True)


def show_variants(plans: Sequence[Mapping[str, Any]]) -> None:
    """Print the figures that decide between variants, one row a variant."""
    priced = any(plan["cost"] is not None for plan in plans)
    table = Table(title="plans", title_justify="left")
    longest = max(len(word) for plan in plans for word in plan["variant"].split() or [""])
    table.add_column("variant", min_width=min(longest, 40), overflow="fold")
    for column in ("memory", "fits", "step", "rate", "MFU", "run", *(["cost"] if priced else [])):
        table.add_column(column, justify="right")
    for plan in plans:
        memory, time = plan["memory"], plan["time"]
        cells = [
            size(memory["peak_bytes"]),
            {True: "yes", False: "no", None: UNKNOWN}[memory["fits"]],
            _ranged(time["step_seconds"], duration),
            f"{_ranged(time['units_per_second'], count)}{plan['unit']}s/s",
            _ranged(time["mfu"], share),
            _ranged(time["total_seconds"], duration),
        ]
        table.add_row(plan["variant"], *cells, *([_ranged(plan["cost"], _money)] if priced else []))
    console = Console(markup=False, emoji=False)
    # Cut columns cannot be read; where nobody's terminal says how wide it is, the table is as wide as it needs.
    console.width = console.width if console.is_terminal else WIDE
    console.print(table)


def _arithmetic(plan: Mapping[str, Any]) -> Iterator[Row]:
    flops, unit = plan["flops"], plan["unit"]
    yield "parameters", f"{count(plan['parameters'])} ({plan['parameters']:,})"
    yield "number format, strategy", f"{plan['precision']}, {plan['strategy']}"
    yield f"{unit}s in a step", f"{plan['units_per_step']:,}"
    yield f"FLOPs to train a {unit}", f"{count(flops['model_per_unit'])} (counted; {_formula(plan)})"
    if flops["hardware_per_unit"] != flops["model_per_unit"]:
        yield "  executed, with recomputation", count(flops["hardware_per_unit"])
    yield f"FLOPs to infer a {unit}", count(flops["inference_per_unit"])
    if flops["total"] is not None:
        yield f"{unit}s in the run", f"{count(flops['total_units'])} in {plan['steps']:,.0f} steps"
        yield "FLOPs of the run, counted", f"{flops['total']:.3g}"
        if flops["six_n_d"] is not None:
            yield "FLOPs of the run, plain 6 N D", f"{flops['six_n_d']:.3g} (all parameters, no attention)"


def _formula(plan: Mapping[str, Any]) -> str:
    return "6 N_matmul + 12 L d T" if plan["unit"] == "token" else "forward and backward of every operation"


def _memory(plan: Mapping[str, Any]) -> Iterator[Row]:
    memory = plan["memory"]
    yield "memory of a device at its peak", f"{size(memory['peak_bytes'])}, in the {memory['peak_phase']} phase"
    for part, bytes_ in sorted(memory["at_peak"].items(), key=lambda item: -item[1]):
        if bytes_ >= memory["peak_bytes"] / 1000:
            yield f"  {part.replace('_', ' ')}", size(bytes_)
    yield "  between steps", size(memory["state_bytes"])
    yield "  if every activation's gradient were kept", size(memory["without_reuse_bytes"])
    usable = memory["usable_bytes"]
    fits = {True: "yes", False: "no", None: UNKNOWN}[memory["fits"]]
    yield "fits", fits if usable is None else f"{fits} ({size(usable)} usable)"


def _time(plan: Mapping[str, Any]) -> Iterator[Row]:
    time, unit = plan["time"], plan["unit"]
    least = " (a lower bound to a cautious guess)" if time["lower_bound"] and time["step_seconds"] else ""
    yield "step", _ranged(time["step_seconds"], duration) + least
    if time["step_seconds"]:
        yield (
            "  method",
            {"replay": "replay: every operation run here", "roofline": "operator roofline"}[time["method"]],
        )
    parts = ", ".join(f"{kind} {duration(seconds)}" for kind, seconds in time["by_kind"].items())
    if parts:
        yield "  of which", parts
    yield f"{unit}s/s", _ranged(time["units_per_second"], count)
    peak = plan["hardware"]["peak_flops_per_second"]
    over = f" of {count(peak)}FLOP/s in {plan['hardware']['format']} ({plan['hardware']['source']})" if peak else ""
    yield "MFU", _ranged(time["mfu"], share) + over
    yield "run", _ranged(time["total_seconds"], duration)
    yield "energy at the rated power", _ranged(plan["energy_joules"], lambda j: f"{j / 3.6e6:,.3g} kWh")
    yield "cost", _ranged(plan["cost"], _money)
    assumed = plan["assumed"]
    if assumed is not None:
        rate = f"{count(assumed['flops_per_second'])}FLOP/s a device"
        yield f"run at {rate}", f"{duration(assumed['total_seconds'])} by the counted FLOPs"
        if assumed["total_seconds_six_n_d"] is not None:
            yield "  by plain 6 N D", duration(assumed["total_seconds_six_n_d"])
            if plan["devices"] > 1:
                yield "  on one device", duration(assumed["one_device_seconds_six_n_d"])


def _failures(plan: Mapping[str, Any]) -> Iterator[Row]:
    failures, checkpoint = plan["failures"], plan["checkpoint"]
    if plan["devices"] == 1 and (failures["expected"] or [0.0])[-1] < SPEAKABLE_FAILURES:
        return
    yield "mean time between failures", duration(failures["mtbf_seconds"])
    if failures["expected"] is not None:
        yield "failures to expect", _ranged(failures["expected"], lambda number: f"{number:,.2g}")
    yield (
        "best checkpoint interval",
        (
            f"{duration(checkpoint['interval_seconds'])} for stalls of {duration(checkpoint['stall_seconds'])} "
            f"(Young {duration(checkpoint['young_seconds'])}, Daly {duration(checkpoint['daly_seconds'])})"
        ),
    )
    yield "goodput at it", f"{share(plan['goodput'])} with restarts of {duration(failures['restart_seconds'])}"


def _decode(plan: Mapping[str, Any]) -> Iterator[Row]:
    decode = plan["decode"]
    if decode is None:
        return
    yield "decoding: weights in 16 bits", size(decode["weights_bytes"], binary=False)
    cache = f"{size(decode['kv_bytes'])} for {decode['context']:,} tokens"
    yield "  KV cache", f"{size(decode['kv_bytes_per_token'])} a token, {cache}"
    if decode["tokens_per_second"] is None:
        return
    yield (
        "  weights alone, a token",
        (
            f"{duration(decode['seconds_per_token_by_bandwidth'])} by bandwidth, "
            f"{duration(decode['seconds_per_token_by_arithmetic'])} by arithmetic"
        ),
    )
    for name, rates in decode["tokens_per_second"].items():
        yield f"  tokens/s at most, {name}", ", ".join(f"{rate:,.0f} (batch {batch})" for batch, rate in rates.items())
    yield "  first token after the prompt", duration(decode["first_token_seconds"])


def _conventions(plan: Mapping[str, Any]) -> Table:
    table = Table("FLOPs of a token", "used by", "count", "MFU", title="the same run by others' counts")
    table.title_justify = "left"
    for row in plan["conventions"]:
        table.add_row(row["formula"], row["used_by"], count(row["per_token"]), _ranged(row["mfu"], share))
    return table


def _notes(plan: Mapping[str, Any]) -> Iterator[str]:
    if plan["memory"]["fits"] is False and plan["memory"]["advice"] is not None:
        yield f"it does not fit; the nearest change with which it does: {plan['memory']['advice']}"
    elif plan["memory"]["fits"] is False:
        yield "it does not fit, and no change is known with which it does"
    if plan["idle_devices"]:
        yield (
            f"{plan['idle_devices']} of {plan['devices']} devices have nothing to do: the global batch has fewer "
            "micro-batches than devices that share it; lower data.micro_batch_size or raise data.global_batch_size"
        )
    if plan["hardware"]["format"] not in plan["hardware"]["formats"]:
        formats = ", ".join(plan["hardware"]["formats"]) or "none"
        yield f"no rate is known for {plan['hardware']['format']} on this device (known: {formats}): no MFU"
    if plan["flops"]["uncounted"]:
        yield f"no FLOP formula, counted as zero: {', '.join(plan['flops']['uncounted'])}"
    if plan["devices"] > 1 and plan["time"]["communication_seconds"] is None:
        yield "communication is not in the time: the links between these devices are unknown"


def _money(value: float) -> str:
    return f"{value:,.2f}"


def _ranged(values: Sequence[float] | None, text: Any) -> str:
    """`least to most`, or one figure where they are the same."""
    if values is None:
        return UNKNOWN
    least, most = text(values[0]), text(values[-1])
    return least if least == most else f"{least} to {most}"
