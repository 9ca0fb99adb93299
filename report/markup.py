"""Pieces of HTML. Everything that goes into them is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A table's cell: its text, the number it is sorted by, a link, and a note that is shown small below."""

    text: str
    value: float | None = None
    href: str | None = None
    note: str = ""

    def html(self, head: bool = False, right: bool = False) -> str:
        """The cell; a head cell names its row, one of a column of numbers stands right."""
        inner = escape(self.text)
        if self.href is not None:
            inner = f'<a href="{escape(self.href)}">{inner}</a>'
        if self.note:
            inner += f"<small>{escape(self.note)}</small>"
        if head:
            return f'<th scope="row">{inner}</th>'
        sort = "" if self.value is None else f' data-value="{self.value!r}"'
        return f"<td{_right(right)}{sort}>{inner}</td>"


def _right(right: bool) -> str:
    return ' class="number"' if right else ""


def table(name: str, head: Sequence[str], rows: Iterable[Sequence[Cell]], sortable: bool = False) -> str:
    """A table under its name, in a box of its own that scrolls sideways. The first cell of a row names the row."""
    rows = list(rows)
    numeric = [any(row[at].value is not None for row in rows) for at in range(len(head))]
    heads = []
    for title, right in zip(head, numeric, strict=True):
        inner = f'<button type="button">{escape(title)}</button>' if sortable else escape(title)
        heads.append(f'<th scope="col"{_right(right)}>{inner}</th>')
    lines = []
    for first, *others in rows:
        cells = (cell.html(right=right) for cell, right in zip(others, numeric[1:], strict=True))
        lines.append(f"<tr>{first.html(head=True)}{''.join(cells)}</tr>\n")
    kind = ' class="sortable"' if sortable else ""
    return (
        f'<div class="box"><p>{escape(name)}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}"><table{kind}>'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>\n{''.join(lines)}</tbody></table></div></div>\n"
    )


def pairs(facts: dict[str, str]) -> str:
    """Names and values below each other."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="pairs">{rows}</dl>'


def section(title: str, inner: str, anchor: str) -> str:
    """A section with its heading; nothing where there is nothing inside."""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>\n{inner}</section>\n' if inner else ""


def details(title: str, inner: str) -> str:
    """What is folded away until it is asked for."""
    return f"<details><summary>{escape(title)}</summary>{inner}</details>\n"


def figure(id_: str, title: str, caption: str, alt: str, height: int, wide: bool) -> str:
    """The place of a figure, which the page's script fills."""
    kind = ' class="wide"' if wide else ""
    note = f"<p>{escape(caption)}</p>" if caption else ""
    return (
        f'<figure id="{escape(id_)}"{kind}><figcaption><h3>{escape(title)}</h3></figcaption><div class="keys"></div>'
        f'<div class="plot" role="img" aria-label="{escape(f"{title}. {alt}")}" style="height:{height}px">'
        f"<noscript>The figure is drawn by a script.</noscript></div>{note}</figure>\n"
    )


def value(text: str) -> Cell:
    """A cell of a value of unknown kind, as in a config: sorted as a number where it is one."""
    try:
        return Cell(text, float(text))
    except ValueError:
        return Cell(text)


def shown(setting: Any) -> str:
    """A config's value as its file would say it."""
    if setting is None:
        return "null"
    if isinstance(setting, bool):
        return str(setting).lower()
    return f"{setting:.6g}" if isinstance(setting, float) else str(setting)
