"""Fine-tuning with rounded weights: what comes back is the network, better prepared."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from export.compressed_tensors import CompressedTensorsExporter
from export.exporter import Task
from export.layers import layers
from export.score import score
from export.source import Source
from export.torchao import TorchAoExporter
from matmill import held_out
from matmill.errors import ConfigError
from matmill.export_source import make_source
from matmill.held_out import TrainedRun
from matmill.qat import fine_tune
from tests.matmill.learned_run import learned_run
from tests.matmill.trained_runs import image_run, text_run


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A transformer of 32 channels that has hardly learned anything."""
    return held_out.load(str(text_run(tmp_path_factory.mktemp("text"))), "latest")


def _integers(bits: int, group: int) -> Any:
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup

    return IntxWeightOnlyConfig({2: torch.int2, 4: torch.int4}[bits], PerGroup(group))


def _equal(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][name], states[1][name]) for name in states[0]
    )


def test_it_returns_the_network_trained_on(text: TrainedRun) -> None:
    """Plain layers again, in fp32, with other weights than before; the run's own network is as it was."""
    before = copy.deepcopy(text.module.network)
    after = fine_tune(text, _integers(4, 32), 3, 1e-3)
    assert _equal(text.module.network, before)
    assert [type(module) for module in after.modules()] == [type(module) for module in before.modules()]
    assert after.state_dict().keys() == before.state_dict().keys()
    for name, tensor in after.state_dict().items():
        assert tensor.dtype == torch.float32
        assert not torch.equal(tensor, before.state_dict()[name]), name
    assert not after.training
    assert not any(parameter.requires_grad for parameter in after.parameters())


def test_the_seed_decides(text: TrainedRun) -> None:
    """The same run and steps give the same weights, whatever was drawn before."""
    one = fine_tune(text, _integers(4, 32), 2, 1e-3)
    torch.rand(7)
    assert _equal(one, fine_tune(text, _integers(4, 32), 2, 1e-3))
    assert not _equal(one, fine_tune(text, _integers(2, 32), 2, 1e-3))


def test_only_layers_that_an_export_rounds_are_imitated(text: TrainedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head, layers asked to be left alone and those that groups do not divide are trained as they are."""
    from torchao.quantization.qat import FakeQuantizedLinear

    from matmill import qat

    found: set[str] = set()

    def look(network: nn.Module) -> None:
        found.update(path for path, module in network.named_modules() if isinstance(module, FakeQuantizedLinear))

    monkeypatch.setattr(qat, "_plain", look)
    fine_tune(text, _integers(4, 32), 1, 1e-3, skip=["blocks.0.attention.key"])
    assert found == set(layers(text.module.network)) - {"head", "blocks.0.attention.key"}
    found.clear()
    fine_tune(text, _integers(4, 64), 1, 1e-3)
    widths = {layers(text.module.network)[path].weight.shape[1] for path in found}
    assert widths == {text.module.network.d_ff}


def test_what_cannot_be_is_refused(text: TrainedRun) -> None:
    """Groups that fit no layer, and a learning rate at which nothing is learned, are said in a line."""
    with pytest.raises(ConfigError, match="no linear layer whose inputs are a multiple of 1000"):
        fine_tune(text, _integers(4, 1000), 1, 1e-3)
    with pytest.raises(ConfigError, match=r"qat_lr=1e\+30: the loss is \S+ in step \d+; lower it"):
        fine_tune(text, _integers(4, 32), 5, 1e30)


def test_exporters_say_what_to_imitate() -> None:
    """The number format of weights; None where there is none to imitate, and then fine-tuning is refused."""
    int4 = CompressedTensorsExporter(scheme="w4a16", max_kl=1.0, group_size=64).quantization_aware()
    assert (int4.weight_dtype, int4.granularity.group_size) == (torch.int4, 64)
    assert CompressedTensorsExporter(scheme="nvfp4a16", max_kl=1.0).quantization_aware() is None
    for scheme in ("int8_weight_only", "int8_dynamic"):
        assert TorchAoExporter(scheme=scheme, max_kl=1.0).quantization_aware().weight_dtype == torch.int8  # type: ignore[arg-type]
    assert TorchAoExporter(scheme="nvfp4_weight_only", max_kl=1.0).quantization_aware() is None


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["int8_weight_only", "int8_dynamic", "fp8_weight_only", "fp8_dynamic"])
def test_image_classifiers_too(tmp_path: Path, scheme: Any) -> None:
    """Whatever a torchao export asks for is trained with, on images as well."""
    run = held_out.load(str(image_run(tmp_path)), "latest", ten_crop=False)
    config = TorchAoExporter(scheme=scheme, max_kl=1.0).quantization_aware()
    after = fine_tune(run, config, 1, 1e-3)
    assert not _equal(after, run.module.network)
    assert [type(module) for module in after.modules()] == [type(module) for module in run.module.network.modules()]


@pytest.mark.slow
def test_rounding_costs_less_after_it(tmp_path: Path) -> None:
    """A 4-bit export has less loss than without, and 2-bit rounding less than after as many steps without rounding.

    The second is the control: that training on lowers the loss shows nothing. Measured: 1.938 against 1.962 nats.
    """
    run = held_out.load(str(learned_run(tmp_path)), "latest")
    source = make_source(run, 100)
    aware, unaware = fine_tune(run, _integers(2, 32), 30, 1e-3), fine_tune(run, _integers(4, 128), 30, 1e-3)
    assert _rounded_loss(aware, source) < _rounded_loss(unaware, source) - 0.01
    exporter = CompressedTensorsExporter(scheme="w4a16", max_kl=1.0, group_size=128)
    assert _export_loss(exporter, unaware, source, tmp_path / "with") < _export_loss(
        exporter, run.module.network, source, tmp_path / "without"
    )


def _rounded_loss(network: nn.Module, source: Source) -> float:
    from torchao.quantization import quantize_

    chosen = set(layers(network)) - {"head"}
    rounded = copy.deepcopy(network)
    quantize_(rounded, _integers(2, 32), filter_fn=lambda _, path: path in chosen)
    with torch.inference_mode():
        return score(rounded, source.held_out, 32, 1, speed=False).loss


def _export_loss(exporter: CompressedTensorsExporter, network: nn.Module, source: Source, directory: Path) -> float:
    directory.mkdir()
    written = exporter.write(replace(source, network=network), directory, Task())
    assert written.logits is not None
    return score(written.logits, source.held_out, 32, 1, speed=False).loss
