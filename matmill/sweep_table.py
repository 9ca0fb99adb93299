"""The table at the end of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.trial import Row


def print_table(rows: Sequence[Row]) -> None:
    """Print number, parameters, status, figures, seconds, and the reason where one has failed."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    failed = any(row.reason for row in rows)
    table = Table("run", "overrides", "status", "figures", "seconds", *(["reason"] if failed else []))
    for row in rows:
        reason = [escape(row.reason)] if failed else []
        table.add_row(str(row.number), escape(row.label), row.status, row.shown, f"{row.seconds:.0f}", *reason)
    Console().print(table)
