"""On what a run ran, and with which versions, as RUN/environment.json and its other files say."""

from __future__ import annotations

from report.run import Run
from report.values import number

_PACKAGES = ("matmill", "torch", "lightning", "torchao")


def device_name(run: Run) -> str | None:
    """The device's name: of the plan's hardware, else of the environment."""
    hardware = run.plan.get("hardware")
    named = hardware.get("name") if isinstance(hardware, dict) else None
    gpus = run.environment.get("gpus")
    if not named and isinstance(gpus, list) and gpus:
        named = gpus[0]
    return str(named or run.environment.get("cpu") or "") or None


def rows(run: Run) -> dict[str, str]:
    """Label and value of each fact that is known, and a last one that says which are not."""
    versions = run.environment.get("packages")
    versions = versions if isinstance(versions, dict) else {}
    gpus = run.environment.get("gpus")
    gpus = [str(gpu) for gpu in gpus] if isinstance(gpus, list) else None
    counted = [f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)] if gpus else ["none"]
    facts = {
        "Device": device_name(run),
        "GPUs of the first machine": ", ".join(counted) if gpus is not None else None,
        "CPU": run.environment.get("cpu"),
        "CPU threads": run.environment.get("threads"),
        "Processes": run.summary.get("world_size", run.plan.get("devices")),
        "Precision": run.summary.get("precision") or run.plan.get("precision"),
        "Strategy": run.summary.get("strategy") or run.plan.get("strategy"),
        "Python": run.environment.get("python"),
        **{name: versions.get(name) for name in _PACKAGES},
        "Other packages": ", ".join(f"{k} {v}" for k, v in versions.items() if v and k not in _PACKAGES) or None,
        "System": run.environment.get("platform"),
    }
    known = {name: str(fact) for name, fact in facts.items() if fact not in (None, "")}
    unknown = [name for name in facts if name not in known and name != "Other packages"]
    return known | ({"Unknown": ", ".join(unknown)} if unknown else {})


def world_size(run: Run) -> int | None:
    """Processes, one for each device."""
    known = number(run.summary, "world_size") or number(run.plan, "devices")
    return int(known) if known else None
