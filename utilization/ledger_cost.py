"""What a run has drawn and cost by its ledger, over all restarts."""

from collections.abc import Iterable

from utilization.ledger_file import Event


def processes(events: Iterable[Event]) -> list[list[Event]]:
    """The events of each process of a run, in order; a process begins with its start."""
    parts: list[list[Event]] = []
    for event in events:
        if event["event"] == "start" or not parts:
            parts.append([])
        parts[-1].append(event)
    return parts


def energy_joules(events: Iterable[Event]) -> float | None:
    """Energy over all restarts; None if a process that trained does not know its own, or none trained.

    A step or stop event holds `joules` since its process started, over all devices, as of the last logging step.
    """
    trained = [part for part in map(_records, processes(events)) if part]
    known = [part[-1]["joules"] for part in trained if "joules" in part[-1]]
    return float(sum(known)) if trained and len(known) == len(trained) else None


def cost(events: Iterable[Event], price_per_hour: float, now: float | None = None) -> float:
    """What a run has cost at the price of one device, in its currency: all devices while a process ran, no waiting.

    A process is known to have run from its start to its last event, the last one to `now` if that is given.
    """
    total = 0.0
    parts = processes(events)
    for number, part in enumerate(parts):
        end = max(event["time"] for event in part)
        if now is not None and number == len(parts) - 1:
            end = max(end, now)
        total += max(end - part[0]["time"], 0.0) / 3600 * part[0].get("devices", 1) * price_per_hour
    return total


def _records(part: list[Event]) -> list[Event]:
    return [event for event in part if event["event"] in ("step", "stop")]
