"""Figures as text."""

import pytest

from report import text


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (text.scaled(989e12, "FLOP/s"), "989 TFLOP/s"),
        (text.scaled(0.5, "J"), "0.5 J"),
        (text.scaled(None, "J"), "unknown"),
        (text.memory(20 * 2**30), "20 GiB"),
        (text.memory(512), "512 B"),
        (text.duration(0.43), "430 ms"),
        (text.duration(2.5e-5), "25 µs"),
        (text.duration(99.5), "99.5 s"),
        (text.duration(3599), "59 min 59 s"),
        (text.duration(3600), "1 h 0 min"),
        (text.duration(7140), "1 h 59 min"),
        (text.duration(4 * 86400), "4 days"),
        (text.duration(0), "0 s"),
        (text.share(0.4567), "45.7%"),
        (text.plain(0.00012345), "0.0001234"),
        (text.plain(-12345.6), "-12,346"),
        (text.whole(1377408.0), "1,377,408"),
        (text.moment(0), "unknown"),
        (text.moment(1_700_000_000), "2023-11-14 22:13 UTC"),
    ],
)
def test_a_reader_can_read_it(said, expected):
    assert said == expected
