"""Sizes from the files of a model from elsewhere."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lightning_modules.transformer.huggingface import config_json
from lightning_modules.transformer.network import Transformer
from matmill.errors import ConfigError
from matmill.pretrained import fill_sizes, read_arguments

ARGUMENTS = {
    "vocab_size": 40,
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "head_dim": 8,
    "d_ff": 24,
    "max_sequence_length": 64,
    "tie_embeddings": True,
    "norm_eps": 1e-6,
    "rope_theta": 5e5,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A config.json."""
    (tmp_path / "config.json").write_text(json.dumps(config_json(Transformer(**ARGUMENTS))))
    return tmp_path


def _config(weights: Path, **model: object) -> object:
    shipped = OmegaConf.merge(
        OmegaConf.load("conf/model/base/transformer.yaml"), OmegaConf.load("conf/model/pretrained.yaml")
    )
    return OmegaConf.merge({"model": shipped}, {"model": {"weights": str(weights), **model}})


def test_what_is_null_is_filled(directory: Path) -> None:
    """The network that follows has the sizes of the one that was saved; what the files do not tell has its default."""
    config = _config(directory)
    fill_sizes(config)
    filled = {name: config.model[name] for name in ARGUMENTS}
    assert filled == ARGUMENTS
    assert config.model.rope_original_context == 8192
    assert config.model.rope_scaling_factor is None


def test_a_size_that_does_not_fit_is_refused(directory: Path) -> None:
    """The line names the key and both values; a shorter context is the same network."""
    fill_sizes(_config(directory, max_sequence_length=32))
    for name, value in (("n_layers", 3), ("max_sequence_length", 65), ("tie_embeddings", False)):
        with pytest.raises(ConfigError, match=rf"model\.{name}={value} does not fit model\.weights=.* is "):
            fill_sizes(_config(directory, **{name: value}))


def test_files_that_are_no_llama_are_named(directory: Path, tmp_path: Path) -> None:
    """Another architecture, a config without sizes and a damaged one each end in a line with the path."""
    file = directory / "config.json"
    whole = json.loads(file.read_text())
    for content, message in (
        (json.dumps({**whole, "model_type": "gpt2"}), "not of a plain Llama decoder: model_type='gpt2'"),
        (json.dumps({"model_type": "llama"}), "config.json lacks 'vocab_size'"),
        ("{", str(tmp_path)),
    ):
        file.write_text(content)
        with pytest.raises(ConfigError) as error:
            read_arguments(directory)
        assert message in str(error.value)
        assert str(tmp_path) in str(error.value)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="is not a whole GGUF file"):
        read_arguments(tmp_path / "model.gguf")
    assert read_arguments(tmp_path / "weights.safetensors") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "config.json: is damaged: "),
        ({"num_attention_heads": 0}, "its n_heads is 0"),
        ({"hidden_size": "16"}, "its d_model is '16'"),
        ({"rope_parameters": [1]}, "config.json: is damaged: "),
        ({"tie_word_embeddings": "yes"}, "its tie_embeddings is 'yes'"),
    ],
)
def test_a_config_of_another_form_is_refused(directory: Path, change: dict[str, object] | None, message: str) -> None:
    """One line that names the file and what is wrong with it, whatever stands there."""
    file = directory / "config.json"
    file.write_text(json.dumps([] if change is None else json.loads(file.read_text()) | change))
    with pytest.raises(ConfigError) as caught:
        read_arguments(directory)
    assert message in str(caught.value)
    assert str(directory) in str(caught.value)
