"""Nothing that lies in a model's directory is run, whatever the files there say."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from export.bitsandbytes import BitsAndBytesExporter
from export.compressed_tensors import CompressedTensorsExporter
from export.exporter import Exporter
from export.quantized_directory import WEIGHTS
from export.safetensors import SafetensorsExporter
from export.torchao import TorchAoExporter
from tests.export.quantized import SIZES, load, write
from tests.export.sources import image_source, text_source

EXPORTERS: dict[str, Exporter] = {
    "safetensors": SafetensorsExporter(dtype="fp32", max_kl=1.0),
    "bitsandbytes": BitsAndBytesExporter(scheme="nf4", max_kl=1.0),
    "torchao": TorchAoExporter(scheme="int8_weight_only", max_kl=1.0),
    "compressed-tensors": CompressedTensorsExporter(scheme="w8a8", max_kl=1.0),
}

CODE = """
import pathlib
pathlib.Path({marker!r}).touch()
from transformers import LlamaConfig as MyConfig, LlamaForCausalLM as MyModel
"""


class Payload:
    """Unpickled, it makes a directory."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.fixture(params=EXPORTERS)
def exporter(request: pytest.FixtureRequest) -> Exporter:
    """One of each format that is a directory of Hugging Face's."""
    return EXPORTERS[request.param]


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What a payload makes; the payload works."""
    pickle.loads(pickle.dumps(Payload(tmp_path / "works")))
    assert (tmp_path / "works").exists()
    return tmp_path / "was_run"


def test_a_pickle_is_not_read(exporter: Exporter, tmp_path: Path, marker: Path) -> None:
    """Beside the weights it is not looked at; instead of them there are no weights."""
    directory = tmp_path / "export"
    write(exporter, text_source(tmp_path, **SIZES), directory)
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(marker)))
    load(exporter, directory)
    (directory / WEIGHTS).unlink()
    with pytest.raises(OSError, match="safetensors"):
        load(exporter, directory)
    assert not marker.exists()


def test_code_beside_the_weights_is_not_run(exporter: Exporter, tmp_path: Path, marker: Path) -> None:
    """`auto_map` in the configuration names code that the library would import if it was trusted."""
    directory = tmp_path / "export"
    source = text_source(tmp_path, **SIZES)
    written = write(exporter, source, directory)
    (directory / "my_code.py").write_text(CODE.format(marker=str(marker)))
    config = json.loads((directory / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "my_code.MyConfig", "AutoModelForCausalLM": "my_code.MyModel"}
    (directory / "config.json").write_text(json.dumps(config))
    runtime = load(exporter, directory)
    assert not marker.exists()
    assert written.logits is not None
    inputs = source.held_out.inputs
    assert (runtime.logits(inputs) == written.logits(inputs)).all()  # the model that the library knows by itself


def test_a_model_that_only_its_own_code_knows_is_refused(exporter: Exporter, tmp_path: Path, marker: Path) -> None:
    """Where the configuration's kind is unknown to the library, that is an error and no reason to run code."""
    directory = tmp_path / "export"
    write(exporter, text_source(tmp_path, **SIZES), directory)
    (directory / "my_code.py").write_text(CODE.format(marker=str(marker)))
    config = json.loads((directory / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "my_code.MyConfig"}}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises((ValueError, OSError)):
        load(exporter, directory)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["bitsandbytes", "torchao"])
def test_a_pickle_by_the_name_of_the_weights(tmp_path: Path, marker: Path, name: str) -> None:
    """This project's own loaders read safetensors and nothing else."""
    directory = tmp_path / "export"
    write(EXPORTERS[name], image_source(tmp_path, samples=2), directory)
    (directory / WEIGHTS).write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(Exception, match=r"(?i)header"):
        load(EXPORTERS[name], directory)
    assert not marker.exists()
