"""Thinning and rounding: what a page leaves out and what it must not."""

import math
import random

from report.figure import label, rounded, stacked, thin


def test_thinning_keeps_ends_and_every_spike():
    noise = random.Random(0)
    points = [(step, noise.gauss(0, 1)) for step in range(100_000)]
    points[31_337], points[77_777] = (31_337, 1e3), (77_777, -1e3)
    drawn = thin(points)
    assert len(drawn) <= 2000
    assert drawn[0] == points[0]
    assert drawn[-1] == points[-1]
    assert {(31_337, 1e3), (77_777, -1e3)} <= set(drawn)
    assert drawn == sorted(drawn)


def test_short_series_are_drawn_whole():
    points = [(step, 1.0) for step in range(2000)]
    assert thin(points) == points
    assert len(thin([*points, (2000, 1.0)])) <= 2000
    assert thin([]) == []


def test_rounding_keeps_six_digits_and_whole_numbers():
    assert rounded({"a": [1.23456789, 12345678, -0.000123456789]}) == {"a": [1.23457, 12345678, -0.000123457]}
    assert rounded([math.nan, math.inf, None, True, "1.23456789"]) == [None, None, None, True, "1.23456789"]


def test_bars_stack_their_parts_and_say_their_shares():
    traces = stacked([{"a": 1.0, "b": 3.0}, {"b": 2.0}], {"a": "red", "c": "blue", "b": "green"}, {"a": "A"}, "")
    assert [(trace["name"], trace["x"], trace["customdata"]) for trace in traces.values()] == [
        ("A", [1.0, 0.0], [0.25, 0.0]),
        ("b", [3.0, 2.0], [0.75, 1.0]),
    ]


def test_plotly_reads_no_tags_in_a_label():
    assert label("<b>x</b>\n&") == "&lt;b&gt;x&lt;/b&gt; &amp;"
