"""Replay: recorded operations run again on made-up arguments, and those that cannot are named."""

import pytest
import torch
import torch.nn.functional as F

from utilization import replay as module
from utilization.operations import Operation, Operations
from utilization.replay import replay
from utilization.tape import Tape

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)


def _recorded(function: object) -> list[Operation]:
    operations = Operations()
    with Tape([operations]):
        function()  # type: ignore[operator]
    return list(operations.found.values())


def test_every_operation_of_a_training_step_can_be_repeated() -> None:
    table, weight = torch.ones(50, 8, requires_grad=True), torch.ones(50, 8, requires_grad=True)
    tokens = torch.randint(0, 50, (2, 5))

    def step() -> None:
        x = F.silu(F.embedding(tokens, table)).bfloat16().float()
        F.cross_entropy((x @ weight.t()).flatten(0, 1), tokens.flatten(), reduction="sum").backward()

    result = replay(_recorded(step), CPU)
    assert result.missing == {}
    assert set(result.seconds) == {"forward", "backward"}
    assert all(seconds > 0 for seconds in result.seconds.values())


def test_seconds_are_those_of_a_call_times_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time_operation", lambda operation, device, held: 0.5)
    x = torch.ones(3)
    result = replay(_recorded(lambda: (x + x, x + x, x * x)), CPU)
    assert result.seconds == {"forward": 1.5}


def test_an_operation_that_cannot_be_repeated_is_named_and_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(operation: Operation, device: torch.device, held_bytes: int) -> float:
        raise RuntimeError("not with these arguments")

    monkeypatch.setattr(module, "time_operation", fails)
    x = torch.ones(3)
    result = replay(_recorded(lambda: (x + x, x + x)), CPU)
    assert result.total == 0
    assert result.missing == {"add": 2}
