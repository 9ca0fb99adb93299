"""fp32 and tf32 say how CUDA multiplies float32 matrices, for as long as the run lasts."""

import pytest
import torch

from precision import FP32, TF32


def flags() -> tuple[str, bool]:
    """How CUDA would multiply now: matrices and convolutions."""
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.fixture
def ampere(monkeypatch):
    """A machine that looks as if it had a GPU with TF32 units."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))


@pytest.mark.parametrize(("kind", "wanted"), [(FP32, ("highest", False)), (TF32, ("high", True))])
def test_products_are_those_of_the_name_and_the_process_gets_its_own_back(ampere, kind, wanted):
    """fp32 is float32 in convolutions too, where torch's default is TF32; afterwards everything is as it was.

    torch.compile asks for `get_float32_matmul_precision`, which must not raise meanwhile."""
    before = flags()
    plugin = kind(device_type="cuda")
    plugin.connect(None, [], [])
    plugin.connect(None, [], [])  # a second entry point of the same trainer
    assert flags() == wanted
    plugin.teardown()
    assert flags() == before


def test_a_cpu_run_touches_no_flags():
    """They are global, and on a CPU they would say something else."""
    before = flags()
    FP32().connect(None, [], [])
    assert flags() == before


def test_tf32_is_refused_where_it_does_not_exist(monkeypatch):
    """In one line that says what to use instead, rather than training in fp32 under a wrong name."""
    with pytest.raises(ValueError, match=r"tf32 needs .* a CPU: use precision=fp32"):
        TF32(device_type="cpu")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Tesla V100")
    with pytest.raises(ValueError, match=r"8\.0 or newer, and this is Tesla V100 has 7\.0") as error:
        TF32(device_type="cuda")
    assert "\n" not in str(error.value)
