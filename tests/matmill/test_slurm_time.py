"""Time limits of SLURM."""

import pytest

from matmill.slurm_time import time_limit


@pytest.mark.parametrize("value", [None, 90, "90", "5:30", "1:30:00", "2-12", "2-12:30", "2-00:00:00", "UNLIMITED"])
def test_the_forms_of_sbatch_pass(value: str | int | None) -> None:
    """All that its manual page lists."""
    assert time_limit(value) == value


@pytest.mark.parametrize("value", ["banana", "1h", "1:2:3:4", "-5", "1-", "", "2 days"])
def test_anything_else_is_refused(value: str) -> None:
    """Where the user sits, not when sbatch is called."""
    with pytest.raises(ValueError, match="must be minutes"):
        time_limit(value)
