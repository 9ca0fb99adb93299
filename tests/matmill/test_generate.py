import json

import pytest
import torch
from omegaconf import OmegaConf

from lightning_modules.transformer import TransformerModule
from matmill import generate

tokenizers = pytest.importorskip("tokenizers")
SEPARATOR = 256


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command on a network over bytes that answers every byte with the next one of `TEXT`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $0", special_tokens=[("<|endoftext|>", SEPARATOR)]
    )
    (tmp_path / "data").mkdir()
    tokenizer.save(str(tmp_path / "data" / "tokenizer.json"))
    (tmp_path / "data" / "data.json").write_text(json.dumps({"kind": "text", "separator_id": SEPARATOR}))

    module = TransformerModule(
        optimizer=torch.optim.AdamW, vocab_size=257, d_model=16, n_layers=1, n_heads=1, max_sequence_length=64
    )
    module.network = module.build_network()
    module.initialise(module.network)

    def answers(network, prompts, **settings):
        """Stands in for the network: each prompt is continued by its first letter's upper case, then ü, then Z."""
        said = [tokenizer.encode(tokenizer.decode(prompt)[:1].upper() + "üZ").ids[1:] for prompt in prompts]
        for step in range(min(4, settings["max_new_tokens"])):
            yield [tokens[step] for tokens in said]

    monkeypatch.setattr(generate, "find_checkpoint", lambda path, checkpoint: None)
    monkeypatch.setattr(
        generate, "load_run", lambda path, checkpoint: (OmegaConf.create({"model": {"_target_": "x"}}), module)
    )

    def run(real=False, **settings):
        if not real:
            monkeypatch.setattr("lightning_modules.transformer.generate.generate", answers)
        shipped = OmegaConf.load("conf/generate.yaml")
        return generate.run(OmegaConf.merge(shipped, {"run": str(tmp_path), **settings}))

    return run


def test_one_prompt_is_printed_with_its_continuation(run, capsys):
    """Standard output holds the text and nothing else; figures go to standard error."""
    run(prompt="abc")
    printed = capsys.readouterr()
    assert printed.out == "abcAüZ\n"
    assert "4 tokens" in printed.err


def test_streamed_pieces_hold_whole_characters(run, monkeypatch):
    """A character whose bytes come in two tokens is printed once it is complete."""
    pieces = []
    monkeypatch.setattr("builtins.print", lambda *text, **_: pieces.extend(text))
    run(prompt="abc")
    assert pieces[:5] == ["abc", "A", "", "ü", "Z"]


def test_several_prompts_are_labelled(run, capsys):
    """Several prompts are numbered, each with its own continuation."""
    run(prompt=["abc", "x"])
    assert capsys.readouterr().out == "[1] abcAüZ\n\n[2] xXüZ\n"


@pytest.mark.parametrize("stream", [True, False])
def test_streaming_changes_nothing_but_when(run, capsys, stream):
    """The same text with and without streaming, also from an empty prompt and a real network."""
    texts = []
    for _ in range(2):
        run(real=True, prompt="", stream=stream, max_new_tokens=20)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_the_end_of_the_context_is_said(run, capsys):
    """A text that ends because the context is full says so on standard error."""
    run(real=True, prompt="abc", temperature=0, max_new_tokens=100)
    assert "stopped at the model's context of 64 tokens" in capsys.readouterr().err


def test_wrong_settings_name_their_key(run):
    """A setting out of range is refused by its key before anything is loaded."""
    with pytest.raises(ValueError, match="top_p"):
        run(top_p=1.5)
