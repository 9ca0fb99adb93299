"""SLURM's way to write how long a job may take."""

import re

_FORMS = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE", re.IGNORECASE)


def time_limit(value: str | int | None) -> str | int | None:
    """`value`, if it is a time limit as sbatch's manual page lists them.

    Raises:
        ValueError: it is none; says how they look.
    """
    if value is not None and _FORMS.fullmatch(str(value)) is None:
        raise ValueError("must be minutes, hours:minutes:seconds or days-hours:minutes:seconds")
    return value
