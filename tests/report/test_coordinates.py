"""The page of a coordinate check: a figure for each parametrisation on the same scale, and the exponents."""

import json
import re
from typing import Any

from report.coordinates import page

EVIL = "<script>alert(1)</script>"


def rows(**changes: Any) -> list[dict[str, Any]]:
    """One activation in two parametrisations."""
    row = {"activation": "logits", "widths": [64, 128], "changes": [0.5, 1.0], "exponent": 1.0}
    flat = row | {"parametrization": "mup", "changes": [0.5, 0.5], "exponent": -0.001}
    return [row | {"parametrization": "standard"} | changes, flat | changes]


def test_slopes_can_be_compared_by_eye():
    """Both figures have the limits of all changes, and the widths for ticks; a power of nearly 0 has no minus."""
    text = page(rows(), "check", "4 steps")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    figures = json.loads(found[1])["figures"]
    assert [figure["id"] for figure in figures] == ["coordinates-standard", "coordinates-mup"]
    assert figures[0]["layout"]["yaxis"]["range"] == figures[1]["layout"]["yaxis"]["range"]
    assert all(figure["layout"]["xaxis"]["tickvals"] == [64, 128] for figure in figures)
    assert "+1.00" in text
    assert "+0.00" in text


def test_what_is_said_is_text():
    """Names that come from a config cannot be markup."""
    assert EVIL not in page(rows(activation=EVIL), EVIL, EVIL)


def test_changes_that_cannot_be_drawn_are_no_error():
    """A rate of 0 moves nothing, too large a one ends in numbers that are none: there is a page nevertheless."""
    for changes in ([0.0, 0.0], [float("nan"), float("inf")]):
        assert "coordinates-mup" in page(rows(changes=changes, exponent=float("nan")), "check", "4 steps")
