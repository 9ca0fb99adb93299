"""Networks with lively outputs and the data directories they come with, without any training."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from datamodules.text.tokenizer import SEPARATOR, load_tokenizer, train_bpe
from export.nasty_texts import NASTY_TEXTS
from export.source import Samples, Source
from lightning_modules.alexnet import AlexNet
from lightning_modules.transformer.network import Transformer

CLASSES = ["kitten", "puppy", "axolotl", "ünïcode", "e"]


def text_source(folder: Path, *, samples: int = 5, length: int = 12, **sizes: Any) -> Source:
    """A tiny transformer whose logits are spread over several nats, and a tokenizer trained on nasty texts."""
    tokenizer = train_bpe(NASTY_TEXTS * 2, 300)
    tokenizer.save(str(folder / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    facts = {"kind": "text", "vocab_size": size, "separator": SEPARATOR, "separator_id": size - 1}
    (folder / "data.json").write_text(json.dumps(facts))
    arguments = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 64, "max_sequence_length": 64} | sizes
    torch.manual_seed(0)
    network = Transformer(vocab_size=size, **arguments).eval()
    network.init_weights()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)  # from 0.02 to a spread at which attention is not uniform
            else:
                parameter.uniform_(0.5, 1.5)  # so that norms cannot be mixed up
    tokens = torch.randint(size, (samples, length + 1))
    return _source(folder, network, Samples(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()))


def image_source(folder: Path, *, network: nn.Module | None = None, samples: int = 40, size: int = 28) -> Source:
    """A small AlexNet on random images."""
    facts = {
        "kind": "images",
        "classes": CLASSES,
        "mean": [0.4, 0.5, 0.6],
        "std": [0.2, 0.25, 0.3],
        "image_size": size,
        "in_channels": 3,
        "skipped": {},
    }
    (folder / "data.json").write_text(json.dumps(facts))
    torch.manual_seed(0)
    network = network or AlexNet(
        num_classes=len(CLASSES), image_size=size, width=0.25, hidden_size=256, initialisation="he"
    )
    network.init_weights()  # type: ignore[operator]
    with torch.no_grad():
        last = list(network.parameters())[-2]
        last.normal_(std=0.2)
    targets = torch.randint(len(CLASSES), (samples,))
    return _source(folder, network.eval(), Samples(torch.rand(samples, 3, size, size), targets))


def _source(folder: Path, network: nn.Module, held_out: Samples) -> Source:
    encode = None
    if (folder / "tokenizer.json").is_file():
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        encode = lambda text: tokenizer.encode(text).ids  # noqa: E731
    return Source(
        name="a_run",
        checkpoint="step-00000007",
        network=network.requires_grad_(False),
        data_directory=folder,
        held_out=held_out,
        calibration=lambda count: held_out.inputs[:count],
        encode=encode,
    )
