"""The bytes in a run's log are those that its strategy must exchange."""

from pathlib import Path
from typing import Any

import pytest

from tests.gloo import in_group


def trained(folder: Path, strategy: str, words: list[str]) -> tuple[Any, Any]:
    """Summary and metrics of the communication callback after three steps, and the parameters' number."""
    from callbacks.communication import Communication
    from matmill import assemble
    from matmill.compose import compose

    words = [*words, f"strategy={strategy}", "devices=2", "trainer.max_steps=3", f"run_dir={folder / strategy}"]
    config = compose("train", words)
    config.callbacks = config.logger = None
    data = assemble.build_data(config)
    module = assemble.build_module(config)
    trainer = assemble.build_trainer(config, 3, assemble.build_boundary(config, folder / strategy / "checkpoints"))
    data.max_steps = 3
    callback = Communication()
    trainer.callbacks.insert(0, callback)  # type: ignore[attr-defined]
    trainer.fit(module, datamodule=data, weights_only=True)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return callback.summary(trainer, module) | callback.metrics(trainer, module), parameters


def cases(folder: Path) -> dict[str, Any]:
    text = ["experiment=parity", "precision=fp32", "trainer.gradient_clip_norm=null", "data.micro_batch_size=2"]
    digits = ["experiment=alexnet_mnist", "model.dropout=0.0", "data.global_batch_size=4", "data.micro_batch_size=4"]
    return {
        "ddp": trained(folder, "ddp", text),
        "towers": trained(folder, "tensor", [*digits, "model.width=0.25", "model.hidden_size=64"]),
    }


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> Any:
    return in_group(2, cases, tmp_path_factory.mktemp("runs"))


COUNT = 8
"""Bytes a device sends for the number of predictions: a float64 over two devices."""


def test_data_parallelism_sends_each_gradient_once_up_and_down(ranks):
    """Two devices, ring all-reduce: as many bytes as the float32 gradients have, whatever the accumulation."""
    found, parameters = ranks[0]["ddp"]
    assert found["communication_bytes_per_step"] == pytest.approx(4 * parameters + COUNT, abs=64)
    assert found["communication/sent_bytes_per_step"] == found["communication_bytes_per_step"]


def test_two_towers_meet_at_conv3_and_the_dense_layers(ranks):
    """AlexNet on two devices, by hand.

    A quarter of the channels on 28-pixel images: a tower has 32 after conv2 and 32 after conv5, 64 neurons are split
    in halves, and so are 10 classes. Forward all-gathers: conv3's and fc6's input, fc6's, fc7's and fc8's output;
    backward: reduce-scatters at conv3 and fc6, all-reduces of the input gradients of fc7 and fc8.
    """
    from lightning_modules.alexnet.network import AlexNet

    network = AlexNet(num_classes=10, image_size=28, in_channels=1, width=0.25, hidden_size=64)
    side = conv3_side(network)
    images, float_bytes = 4, 4
    conv3 = images * 32 * side * side * float_bytes  # one tower's part
    fc6 = images * 32 * 36 * float_bytes
    gathered = conv3 + fc6 + images * (32 + 32 + 5) * float_bytes
    scattered = conv3 + fc6
    reduced = 2 * images * 64 * float_bytes  # all-reduce over two devices: as many bytes as the tensor has
    found, _ = ranks[0]["towers"]
    assert found["communication_bytes_per_step"] == gathered + scattered + reduced
    assert found["communication_bytes_by_group"] == {"tensor": gathered + scattered + reduced}


def conv3_side(network: Any) -> int:
    """Height of conv3's input."""
    import torch

    seen = []
    network.conv3.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[-1]))
    network(torch.zeros(1, 1, 28, 28))
    return int(seen[0])


def test_only_the_first_process_counts(ranks):
    """The others do not know, and say so."""
    assert ranks[1]["ddp"][0]["communication_bytes_per_step"] is None
