"""muP: the factors of table 8, their absence at the base width, and the way out of it."""

import math
from functools import partial
from typing import Any

import pytest
import torch

from lightning_modules.optimizers import adamw, adamw_4bit, adamw_8bit, muon, sgd
from lightning_modules.schedules import Plateau, WarmupCosine, scheduler
from lightning_modules.transformer import Transformer, TransformerModule, to_standard
from lightning_modules.transformer.generate import generate
from lightning_modules.transformer.huggingface import config_json, to_huggingface
from tests.lightning_modules.split import load, save

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 128,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "max_sequence_length": 64,
}
MUP = {"parametrization": "mup", "base_width": 32}
FOURTH = 0.25
"""Base width over width."""


def built(optimizer: Any = adamw, **changes: Any) -> TransformerModule:
    """A module with its first weights."""
    module = TransformerModule(optimizer=partial(optimizer, lr=1e-2, weight_decay=0.1), **(SIZES | changes))
    module.network = module.build_network()
    module.initialise(module.network)
    return module


def stepped(module: TransformerModule, optimizer: Any, steps: int, following: Any = None) -> list[float]:
    """Losses of some steps on one batch; the schedule moves too if there is one."""
    tokens = torch.randint(97, (2, 33), generator=torch.Generator().manual_seed(1))
    batch, losses = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}, []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module.network_loss(module.network, batch) / 64
        loss.backward()
        optimizer.step()
        if following is not None:
            following.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("changes", [{}, {"head_dim": 48}, {"n_heads": 8, "base_head_dim": 16}])
def test_at_the_base_width_it_is_the_standard_one(tied, changes):
    """First weights and two training steps are those of the standard parametrisation, bit for bit."""
    modules = [built(tie_embeddings=tied, **changes)]
    modules[0].network_arguments.pop("base_head_dim", None)
    modules += [built(tie_embeddings=tied, parametrization="mup", base_width=128, **changes)]
    losses = [stepped(module, module.build_optimizer(module.network), 2) for module in modules]
    assert losses[0] == losses[1]
    for (name, one), other in zip(modules[0].network.named_parameters(), modules[1].network.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_first_weights_of_hidden_matrices_have_less_spread():
    """The same draws, those of the blocks times sqrt(base width / width), embedding and head as they were."""
    standard, scaled = built().network, built(**MUP).network
    for (name, one), other in zip(standard.named_parameters(), scaled.parameters(), strict=True):
        hidden = name.startswith("blocks.") and one.ndim == 2
        torch.testing.assert_close(other, one * math.sqrt(FOURTH) if hidden else one, rtol=1e-6, atol=0, msg=name)


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({}, math.sqrt(8) / 32),  # four heads at both widths: of 8 channels at the base, of 32 here
        ({"head_dim": 32}, None),  # a given head_dim is that of every width: 1 / sqrt(head_dim)
        ({"base_head_dim": 16}, math.sqrt(16) / 32),
    ],
)
def test_attention_falls_with_the_heads_width(changes, scale):
    """sqrt(base_head_dim) / head_dim: 1 / head_dim, and 1 / sqrt(head_dim) at the base."""
    for block in Transformer(**(SIZES | MUP | changes)).blocks:
        assert block.attention.scale == (None if scale is None else pytest.approx(scale))


@pytest.mark.parametrize("factory", [adamw, adamw_8bit, adamw_4bit])
def test_hidden_matrices_learn_slower_and_decay_alike(factory):
    """Their learning rate is a fourth, their weight decay four times: rate times decay is that of every width."""
    module = built(factory, **MUP)
    hidden, head, kept = module.build_optimizer(module.network).param_groups
    assert len(hidden["params"]) == 14
    assert hidden["lr"] == pytest.approx(FOURTH * 1e-2)
    assert head["lr"] == kept["lr"] == 1e-2
    assert hidden["lr"] * hidden["weight_decay"] == pytest.approx(1e-2 * 0.1)
    assert (head["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)


def test_one_step_moves_hidden_matrices_by_their_own_rate():
    """Adam's first step is one learning rate for every element that has a gradient: a fourth of the head's."""
    module = built(**MUP)
    before = {name: p.detach().clone() for name, p in module.network.named_parameters()}
    optimizer = module.build_optimizer(module.network)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    stepped(module, optimizer, 1)
    for name, rate in (("blocks.1.feed_forward.up.weight", FOURTH * 1e-2), ("head.weight", 1e-2)):
        moved = (module.network.get_parameter(name).detach() - before[name]).abs()
        # A gradient of 100 eps or more moves its weight by 99 % of the rate or more; most are larger.
        assert float(moved.median()) == pytest.approx(rate, rel=0.01), name


def test_schedules_keep_the_factor():
    """A schedule multiplies each group's own rate; the floor of a plateau schedule is scaled as the rate is."""
    for schedule in (WarmupCosine(warmup_steps=2), Plateau(patience=0, minimum=5e-3)):
        module = built(**MUP)
        optimizer = module.build_optimizer(module.network)
        following: Any = scheduler(schedule, optimizer, 10)
        for _ in range(5):
            optimizer.step()
            following.step(*([1.0] if isinstance(schedule, Plateau) else []))
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates[0] == pytest.approx(FOURTH * rates[1])
        assert rates[1] == rates[2] < 1e-2


@pytest.mark.parametrize(("factory", "name"), [(muon, "Muon"), (sgd, "ShardedSGD"), (torch.optim.Adam, "Adam")])
def test_other_optimizers_are_refused(factory, name):
    """At the base width too: the rule is worked out for AdamW only, and the error says so in one line."""
    for base in (32, 128):
        module = built(factory, parametrization="mup", base_width=base)
        with pytest.raises(
            ValueError, match=f"^model.parametrization=mup is worked out for AdamW only, not for {name}:"
        ):
            module.build_optimizer(module.network)


def test_resume_is_exact(tmp_path):
    """From a checkpoint into other first weights and rates, the next losses are those of the unbroken run."""
    straight, resumed = built(**MUP), built(**MUP, seed=1)
    optimizer, other = straight.build_optimizer(straight.network), resumed.build_optimizer(resumed.network)
    following = scheduler(WarmupCosine(warmup_steps=3), optimizer, 8)
    stepped(straight, optimizer, 3, following)
    save(tmp_path / "checkpoint", straight.network, optimizer)
    kept = following.state_dict()
    expected = stepped(straight, optimizer, 3, following)
    again = scheduler(WarmupCosine(warmup_steps=3), other, 8)
    load(tmp_path / "checkpoint", resumed.network, other)
    again.load_state_dict(kept)
    assert stepped(resumed, other, 3, again) == expected
    assert [g["lr"] for g in other.param_groups] == [g["lr"] for g in optimizer.param_groups]


WIDENED = {"d_model": 128, "base_width": 32, "parametrization": "mup"}


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": True}, {"head_dim": 16}, {"base_head_dim": 20}])
def test_the_standard_form_computes_the_same(small, changes):
    """Logits, loss and generated tokens of `to_standard` are the network's own, which it leaves as it was.

    Tolerance: each scaled weight is rounded once more, 2^-24 of logits of up to a few units.
    """
    network = small(**WIDENED, **changes)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    plain = to_standard(network)
    assert to_standard(plain) is plain
    tokens = torch.randint(97, (2, 40))
    with torch.no_grad():
        torch.testing.assert_close(plain(tokens), network(tokens), rtol=0, atol=1e-5)
        torch.testing.assert_close(plain(tokens, tokens), network(tokens, tokens), rtol=1e-6, atol=0)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    prompts = [tokens[0, :5].tolist()]
    texts = [list(generate(n, prompts, max_new_tokens=10, temperature=0)) for n in (network, plain)]
    assert texts[0] == texts[1]


def test_the_standard_form_is_another_function_than_its_unscaled_weights(small):
    """The comparison above can fail: without the scaling the logits differ by far."""
    network = small(**WIDENED)
    other = Transformer(**(SIZES | {"d_model": 128, "max_sequence_length": 128}))
    other.load_state_dict(network.state_dict())
    tokens = torch.randint(97, (2, 40))
    with torch.no_grad():
        assert (other(tokens) - network(tokens)).abs().max() > 0.1


def test_llama_of_transformers_computes_the_same(small):
    """The standard form under Hugging Face's names is a Llama with the same logits."""
    transformers = pytest.importorskip("transformers")
    network = small(**WIDENED)
    plain = to_standard(network)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config_json(plain)))
    theirs.load_state_dict(to_huggingface(plain.state_dict()))
    tokens = torch.randint(97, (2, 40))
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(tokens).logits, network(tokens), rtol=0, atol=1e-5)


def test_what_knows_no_multipliers_refuses_them(small, tmp_path):
    """A config.json is not written of it, and no run starts in it from weights of a standard network."""
    from safetensors.torch import save_file

    with pytest.raises(ValueError, match=r"^model\.parametrization=mup: .* give to_standard\(network\)$"):
        config_json(small(**WIDENED))
    save_file(to_huggingface(small(**SIZES).state_dict()), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"needs model\.parametrization=standard"):
        built(**MUP, weights=str(tmp_path))
