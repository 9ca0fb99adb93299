"""What a few steps change in a transformer does not grow with its width under muP, and does otherwise."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from lightning_modules.optimizers import adamw
from lightning_modules.transformer import Transformer, TransformerModule
from lightning_modules.transformer.parametrization import Parametrization
from matmill.coordinates import Changes, moved
from tests.matmill.command import TINY, change, run

WIDTHS = (64, 128, 256, 512)
BATCHES = 3


def batches() -> list[dict[str, Any]]:
    """Tokens whose frequencies fall as 1 / rank, as those of words do: there is something to learn at once."""
    generator, frequencies = torch.Generator().manual_seed(1), 1 / torch.arange(1, 98).float()
    found = []
    for _ in range(BATCHES):
        tokens = torch.multinomial(frequencies, 4 * 33, replacement=True, generator=generator).view(4, 33)
        found.append({"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "units": 128})
    return found


def changes(network_class: type = Transformer, **arguments: Any) -> dict[str, Changes]:
    """By activation."""
    found: dict[str, list[float]] = {}
    for width in WIDTHS:
        sizes = {"vocab_size": 97, "d_model": width, "n_layers": 2, "n_heads": 4, "max_sequence_length": 32}
        sizes["base_width"] = WIDTHS[0]
        module = TransformerModule(optimizer=partial(adamw, lr=1e-3), **(sizes | arguments))
        module.network_class = network_class  # type: ignore[misc]
        for name, value in moved(module, batches(), torch.device("cpu")).items():
            found.setdefault(name, []).append(value)
    return {name: Changes("", name, WIDTHS, tuple(values)) for name, values in found.items()}


@pytest.mark.parametrize("tied", [True, False])
def test_changes_do_not_grow_under_mup(tied):
    """Theory: each change tends to a limit that is not 0, missed at the width n by terms in 1 / sqrt(n).

    So the power of the width is 0 and not above; from three such terms of 1 / sqrt(64), the limit may be 3/8 above the
    change at the base width. It may be below where random first weights take part, as in the head: that part falls
    with 1 / sqrt(n), which is the power -1/2 if there were nothing else.
    """
    for name, row in changes(parametrization="mup", tie_embeddings=tied).items():
        assert -0.5 < row.exponent < 0.25, (name, row)
        assert max(row.changes) < 1.375 * row.changes[0], (name, row)


def test_changes_grow_in_the_standard_parametrization():
    """Theory: power 1 for what hidden matrices and the head make, from rates that do not fall, and more for what comes
    after several of them; half of it is the bound. What the embedding gives changes alike."""
    for name, row in changes().items():
        if name == "embedding":
            assert abs(row.exponent) < 0.25
        else:
            assert row.exponent > 0.5, (name, row)


class Without(Transformer):
    """muP but for one of its rules."""

    rule: dict[str, Any]

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.parametrization = replace(self.parametrization, **self.rule)


@pytest.mark.parametrize(
    "rule", [{"hidden_lr": 1.0}, {"logits": 1.0}, {"hidden_std": 1.0}], ids=lambda rule: next(iter(rule))
)
def test_each_rule_is_needed(rule):
    """The check sees any one of the factors missing: something then grows, at least with the square root of the width
    (a variance that is left alone) over the tolerance of a fourth."""
    lame = type("Lame", (Without,), {"rule": rule})
    assert next(iter(rule)) in Parametrization.__dataclass_fields__
    found = changes(lame, parametrization="mup")
    assert max(row.exponent for row in found.values()) > 0.25, found


def test_the_exponent_is_a_slope():
    """A change that grows with the square of the width has the exponent 2."""
    assert Changes("mup", "x", (2, 4, 8), (4.0, 16.0, 64.0)).exponent == pytest.approx(2)


WORDS = [
    "bench",
    "coordinates",
    *change(TINY, "model.d_model=32"),
    "model.base_width=16",
    "widths=[16,32,64]",
    "cache_dir=cache",
]


def test_the_command_writes_a_page(tmp_path):
    """Every activation in both parametrisations is in the JSON and on the page; at the base width they are equal."""
    assert run(tmp_path, *WORDS, "steps=2", "format=json").status == 0
    rows = json.loads((tmp_path / ".out").read_text())
    assert len(rows) == 12
    first = {(row["parametrization"], row["activation"]): row["changes"][0] for row in rows}
    for name in {row["activation"] for row in rows}:
        assert first["standard", name] == first["mup", name]
    result = run(tmp_path, *WORDS, "steps=2", "run_dir=out")
    assert result.status == 0, result.err
    assert "feed-forward" in result.out
    page = (tmp_path / "out" / "coordinates.html").read_text()
    assert 'id="coordinates-standard"' in page
    assert 'id="coordinates-mup"' in page


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("model.d_ff=64", "model.d_ff=64: must be null for what=coordinates"),
        ("optimizer=sgd", "optimizer: model.parametrization=mup is worked out for AdamW only, not for ShardedSGD"),
        ("widths=[16]", "widths"),
    ],
)
def test_what_cannot_be_checked_is_named(tmp_path, word, message):
    """One line that names the key."""
    result = run(tmp_path, *[w for w in WORDS if not w.startswith(word.split("=")[0] + "=")], word)
    assert result.status == 2
    assert message in result.err
