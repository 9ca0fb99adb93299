"""Runs that others are compared with."""

import functools
from collections.abc import Callable

import pytest

from tests.resume.toy import diary, in_child, train


@pytest.fixture(scope="package")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool, int], dict[tuple[int, str], str]]:
    """Diaries of uninterrupted runs that save synchronously, by (plateau schedule, micro-batch size)."""

    @functools.cache
    def run(plateau: bool = False, micro: int = 4) -> dict[tuple[int, str], str]:
        directory = tmp_path_factory.mktemp("straight")
        assert in_child(lambda: train(directory, plateau=plateau, micro=micro)) == 0
        return diary(directory)

    return run
