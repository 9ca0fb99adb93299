"""The figures a reader looks for first, each with what it means and `unknown` where it is not known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from report import environment, text
from report.goodput import account
from report.memory import peak_bytes
from report.run import Run
from report.values import last_finite, number


@dataclass(frozen=True)
class Tile:
    """A figure of the headline: what it is, its value as text, and a line that explains it."""

    name: str
    value: str
    note: str = ""


def tiles(run: Run) -> list[Tile]:
    """The headline of one run."""
    return [*_quality(run), *_speed(run), *_time(run), *_price(run)]


def wall_seconds(run: Run) -> float | None:
    """Seconds since the run first started, over all its restarts, up to its end or last sign of life."""
    counted = account(run)
    return counted.wall_seconds if counted else number(run.summary, "wall_seconds")


def goodput(run: Run) -> float | None:
    """Goodput of the ledger, else as the summary says."""
    counted = account(run)
    return counted.goodput if counted else number(run.summary, "goodput")


def _quality(run: Run) -> Iterator[Tile]:
    loss, step = run.figure("val_loss"), ""
    points = run.metrics.get("val/loss", [])
    if points and last_finite(points) is not None:
        step = f"at step {points[-1][0]:,}"
    yield Tile("Validation loss", text.plain(loss), step)
    yield Tile("Training loss", _loss(run), f"step {run.steps:,}" if run.steps is not None else "")
    for name, title, form in (
        ("val_bits_per_byte", "Bits per byte", text.plain),
        ("val_top1", "Top-1 accuracy", text.share),
        ("val_top5", "Top-5 accuracy", text.share),
    ):
        value = run.figure(name)
        if value is not None:
            yield Tile(title, form(value), "validation")


def _loss(run: Run) -> str:
    points = run.metrics.get("train/loss", [])
    if points and last_finite(points) is None:
        return str(points[-1][1])
    return text.plain(run.figure("train_loss"))


def _speed(run: Run) -> Iterator[Tile]:
    devices = environment.world_size(run)
    over = f"over {devices} devices" if devices and devices > 1 else "one device" if devices else ""
    speed = run.figure(f"{run.unit}s_per_second")
    yield Tile(f"{run.unit.capitalize()}s per second", text.whole(speed), over)
    yield Tile("MFU", text.share(run.figure("mfu")), _peak(run))
    hfu = run.figure("hfu")
    if hfu is not None:
        yield Tile("HFU", text.share(hfu), "recomputation and padding count")
    wait = run.figure("data_wait_fraction")
    yield Tile("Data wait", text.share(wait), "share of a step")
    yield Tile("Peak memory", text.memory(peak_bytes(run)), _memory_note(run))


def _peak(run: Run) -> str:
    """What the MFU was divided by, and where that comes from."""
    hardware = run.plan.get("hardware")
    hardware = hardware if isinstance(hardware, dict) else {}
    planned, own = number(hardware, "peak_flops_per_second"), number(run.summary, "peak_flops_per_second")
    achieved, mfu = run.figure("achieved_flops_per_second"), run.figure("mfu")
    source: object = run.summary.get("peak_source")
    if own is None and achieved and mfu:  # until a run has ended, its rows say what it divides by, but not whence
        own, source = achieved / mfu, None
    if own is None or (source is None and planned is not None and abs(planned - own) <= 0.01 * own):
        own, source = planned, hardware.get("source")
    if own is None:
        return "no peak of the device is known"
    form = f" dense {hardware['format']}" if hardware.get("format") else ""
    return f"of {text.scaled(own, 'FLOP/s')}{form}, {_SOURCES.get(str(source), str(source))}"


_SOURCES = {
    "datasheet": "from the data sheet",
    "measured": "measured on this machine",
    "configured": "as configured",
    "None": "of unknown source",
}


def _memory_note(run: Run) -> str:
    if run.on_cpu:
        return "resident set of the process"
    device, peak = number(run.plan, "hardware", "memory_bytes"), peak_bytes(run)
    return f"{text.share(peak / device)} of {text.memory(device)}" if device and peak else "of one device"


def _time(run: Run) -> Iterator[Tile]:
    counted = account(run)
    restarts = counted.interruptions if counted else number(run.summary, "interruptions")
    said = "" if restarts is None else f"{restarts:.0f} interruption{'' if restarts == 1 else 's'}"
    yield Tile("Goodput", text.share(goodput(run)), said)
    yield Tile("Wall time", text.duration(wall_seconds(run)), "since the first start")


def _price(run: Run) -> Iterator[Tile]:
    joules, per_unit = run.figure("energy_joules"), number(run.summary, f"joules_per_{run.unit}")
    notes = [
        f"{joules / 3.6e6:.3g} kWh" if joules is not None and joules >= 3600 else "",
        f"{per_unit:.3g} J a {run.unit}" if per_unit is not None else "",
        f"by {run.summary['power_source']}" if joules is not None and run.summary.get("power_source") else "",
    ]
    yield Tile("Energy", text.scaled(joules, "J"), ", ".join(filter(None, notes)))
    cost = run.figure("cost")
    yield Tile("Cost", text.plain(cost), "" if cost is None else "in the currency of the price that was set")
