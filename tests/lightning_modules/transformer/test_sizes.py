from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from lightning_modules.transformer import Transformer
from matmill.compose import compose

CONF = Path(__file__).parents[3] / "conf"

# (vocabulary for the sizes that leave it to the data, parameters); the Llama figures are those of the
# released models
SIZES = {
    "transformer_1m": (1024, 984_192),
    "transformer_4m": (1024, 3_475_712),
    "transformer_30m": (4096, 29_893_120),
    "smollm2_135m": (None, 134_515_008),
    "llama3_1b": (None, 1_235_814_400),
    "llama3_8b": (None, 8_030_261_248),
    "llama3_70b": (None, 70_553_706_496),
    "llama3_405b": (None, 405_853_388_800),
}


def test_every_size_is_tested():
    """A size added to the configs has its parameters counted here."""
    ours = {path.stem for path in (CONF / "model").glob("*.yaml") if "alexnet" not in path.stem}
    assert ours - {"pretrained"} == SIZES.keys()


@pytest.mark.parametrize("name", SIZES)
def test_configured_sizes_have_the_stated_parameters(name):
    """Each shipped size builds, without memory, and has exactly the parameters it is named for."""
    vocab_size, parameters = SIZES[name]
    config = compose("train", [f"model={name}", "data.sequence_length=512"])
    config = OmegaConf.to_container(config.model, resolve=True)
    arguments = {key: value for key, value in config.items() if key not in ("_target_", "weights")}
    arguments["vocab_size"] = arguments["vocab_size"] or vocab_size
    with torch.device("meta"):
        network = Transformer(**arguments)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
