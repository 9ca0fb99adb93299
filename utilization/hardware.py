"""What accelerators can do by their vendors' documents: the denominators of utilization, and what a plan assumes.

The figures are in `accelerators.toml` beside this file, each row with its source. All rates are dense: vendors print
structured sparsity first, twice as high. A driver's name is matched whole: "NVIDIA L40S" contains "L4", and an H100
comes in forms that differ by a third. A device that is not there is unknown; it gets no guess.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

GIB = 2**30
_FILE = Path(__file__).with_name("accelerators.toml")


@dataclass(frozen=True)
class Hardware:
    """One accelerator, as the driver shows it.

    key: its short name in the table.
    names: as drivers print them, matched whole; empty where no name belongs to this device alone.
    year: of the announcement.
    peak: dense operations/s by format: fp32 (no reduced-precision tensor cores), tf32, fp16, bf16 (both with fp32
        accumulation), fp8, fp4, int8; a format that it lacks or whose rate is unknown is missing.
    memory_bytes: nominal device memory (drivers keep a little for themselves).
    memory_bandwidth: B/s.
    link_bandwidth: B/s in one direction, all links of the device, to devices of the same machine or NVLink domain;
        None where they meet over PCIe only, or unknown.
    link_domain: devices that such links join, 1 without links.
    power_watts: the board's rating, None if unknown.
    source: the document, and what was derived from it, such as halved from a figure with sparsity.
    """

    key: str
    names: tuple[str, ...]
    year: int
    peak: Mapping[str, float]
    memory_bytes: int
    memory_bandwidth: float
    link_bandwidth: float | None
    link_domain: int
    power_watts: float | None
    source: str


class _Table(Mapping[str, Hardware]):
    """The file's rows by key, read when first asked for: importing this module costs nothing."""

    @cached_property
    def _rows(self) -> dict[str, Hardware]:
        content = tomllib.loads(_FILE.read_text(encoding="utf-8"))
        documents = content.pop("documents")
        return {key: _hardware(key, row, documents) for key, row in content.items()}

    @cached_property
    def by_name(self) -> dict[str, Hardware]:
        """Rows by every driver's name."""
        return {name: row for row in self.values() for name in row.names}

    def __getitem__(self, key: str) -> Hardware:
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _hardware(key: str, row: dict[str, Any], documents: dict[str, str]) -> Hardware:
    link, watts = row.get("link_gb_per_s"), row.get("watts")
    return Hardware(
        key=key,
        names=tuple(row["names"]),
        year=row["year"],
        peak={name: rate * 1e12 for name, rate in row["tflops"].items()},
        memory_bytes=row["memory_gib"] * GIB,
        memory_bandwidth=row["memory_gb_per_s"] * 1e9,
        link_bandwidth=None if link is None else link * 1e9,
        link_domain=row.get("link_domain", 1),
        power_watts=None if watts is None else float(watts),
        source="; ".join([documents[row["document"]], *([row["note"]] if "note" in row else [])]),
    )


_TABLE = _Table()

HARDWARE: Mapping[str, Hardware] = _TABLE
"""Every known accelerator by its key."""


def datasheet(device_name: str) -> Hardware | None:
    """The device with exactly this driver's name (`torch.cuda.get_device_name()`), None if unknown or ambiguous."""
    return _TABLE.by_name.get(device_name)
