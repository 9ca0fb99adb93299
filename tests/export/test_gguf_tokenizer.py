"""The tokenizer in a GGUF file is the one of training, or there is no file."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from datamodules.text.gguf import UNUSED, USER_DEFINED, read_own_tokenizer, read_tokenizer
from datamodules.text.tokenizer import SEPARATOR, bytes_tokenizer, load_tokenizer, read_plain, train_bpe, with_separator
from export import gguf as exporter
from export.gguf_tokenizer import gguf_tokenizer
from export.nasty_texts import NASTY_TEXTS
from lightning_modules.transformer.network import Transformer
from tests.export.gguf_files import load, write_source
from tests.export.sources import text_source

pytest.importorskip("gguf", reason="writes the file: pip install 'matmill[gguf]'")
pytest.importorskip("xllamacpp", reason="runs the file: pip install 'matmill[gguf]'")

SAME = (256, 256)
"""Ids of the separator where there are no merges, as the token that opens a text and ends one."""
SPARE = 3
"""Tokens that the model has beyond the tokenizer's."""

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
LLAMA3 = (  # from the tokenizer.json of Llama 3
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
PARTS = {
    "gpt-2": BYTES,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTES]),
    "llama-bpe": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
}


def trained(pre: str) -> Tokenizer:
    """Byte-level BPE with this pre-tokenizer and all the merges that the nasty texts give."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = PARTS[pre]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(NASTY_TEXTS * 2, trainer)
    return with_separator(tokenizer, SEPARATOR)


def export(tokenizer: Tokenizer, folder: Path, end: str = SEPARATOR) -> Path:
    """The directory with the GGUF file of a model that has this tokenizer; `end` ends a text."""
    (folder / "data").mkdir()
    source = text_source(folder / "data")
    tokenizer.save(str(folder / "data" / "tokenizer.json"))
    facts = {"kind": "text", "separator_id": tokenizer.token_to_id(SEPARATOR), "end_id": tokenizer.token_to_id(end)}
    (folder / "data" / "data.json").write_text(json.dumps(facts))
    sizes: dict[str, Any] = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 32, "max_sequence_length": 32}
    network = Transformer(vocab_size=max(tokenizer.get_vocab().values()) + 1 + SPARE, **sizes)
    return write_source(replace(source, network=network), folder / "export", "f32")[0]


@pytest.mark.parametrize("pre", PARTS)
def test_ids_are_the_same_everywhere(tmp_path: Path, pre: str) -> None:
    """On 200 nasty texts: in training, in transformers, in llama.cpp, and read back from the file."""
    from transformers import PreTrainedTokenizerFast

    directory = export(trained(pre), tmp_path)
    file = tmp_path / "data" / "tokenizer.json"
    training = load_tokenizer(file)
    ids = [training.encode(text).ids for text in NASTY_TEXTS]
    assert len(set(NASTY_TEXTS)) == 200
    runtime = load(directory)
    assert runtime.token_ids(NASTY_TEXTS) == ids
    assert [runtime.text(each) for each in ids] == NASTY_TEXTS
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(file), split_special_tokens=True)
    assert [theirs(text)["input_ids"] for text in NASTY_TEXTS] == ids
    again = read_tokenizer(directory / "model.gguf")
    assert [again.encode(text).ids for text in NASTY_TEXTS] == ids
    assert [again.decode(each) for each in ids] == NASTY_TEXTS


@pytest.mark.parametrize("pre", PARTS)
@pytest.mark.parametrize("other", PARTS)
def test_another_pre_tokenizer_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pre: str, other: str
) -> None:
    """A file with the wrong name of the pre-tokenizer loads and runs; the ids of nasty texts tell."""
    make = exporter.gguf_tokenizer
    monkeypatch.setattr(exporter, "gguf_tokenizer", lambda *args: replace(make(*args), pre=other))
    directory = export(trained(pre), tmp_path)
    training = load_tokenizer(tmp_path / "data" / "tokenizer.json")
    same = load(directory).token_ids(NASTY_TEXTS) == [training.encode(text).ids for text in NASTY_TEXTS]
    assert same == (pre == other)


def test_bytes_only(tmp_path: Path) -> None:
    """A tokenizer without any merges, which llama.cpp would not load as such."""
    directory = export(bytes_tokenizer(), tmp_path)
    assert load(directory).token_ids(["aß"]) == [[256, 97, 0xC3, 0x9F]]
    assert read_tokenizer(directory / "model.gguf").encode("aß").ids == [256, 97, 0xC3, 0x9F]


def test_tokens_that_are_found_in_every_text(tmp_path: Path) -> None:
    """An added token that is not special is one token wherever a text has it, the longest first; so in llama.cpp."""
    tokenizer = trained("gpt-2")
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<tool>", "<tool>!", "heaven")])
    directory = export(tokenizer, tmp_path)
    texts = ["a<tool>b", "<tool>!", "the heavens <tool><tool>!"]
    training = load_tokenizer(tmp_path / "data" / "tokenizer.json")
    ids = [training.encode(text).ids for text in texts]
    assert ids[1] == [training.token_to_id(SEPARATOR), training.token_to_id("<tool>!")]
    runtime = load(directory)
    assert runtime.token_ids(texts) == ids
    assert [runtime.text(each) for each in ids] == texts
    again = read_tokenizer(directory / "model.gguf")
    assert [again.encode(text).ids for text in texts] == ids


@pytest.mark.parametrize(("before", "behind"), [([], []), ([SEPARATOR], []), ([SEPARATOR], ["<end>"]), ([], ["<end>"])])
def test_a_model_from_elsewhere_keeps_its_own_way(tmp_path: Path, before: list[str], behind: list[str]) -> None:
    """Nothing, a token in front, another behind: llama.cpp does the same, and so does the file read back."""
    tokenizer = trained("gpt-2")
    tokenizer.add_special_tokens(["<end>"])
    names = {*before, *behind}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *behind], special_tokens=[(name, tokenizer.token_to_id(name)) for name in names]
    )
    directory = export(tokenizer, tmp_path, end="<end>")
    ids = [read_plain(tmp_path / "data" / "tokenizer.json").encode(text).ids for text in NASTY_TEXTS]
    assert ids[0] == [tokenizer.token_to_id(name) for name in before + behind]
    assert load(directory).token_ids(NASTY_TEXTS) == ids
    own = read_own_tokenizer(directory / "model.gguf")
    assert [own.tokenizer.encode(text).ids for text in NASTY_TEXTS] == ids
    assert (own.begin, own.end) == (SEPARATOR, "<end>")


def test_anything_else_around_a_text_is_refused() -> None:
    """Two tokens in front."""
    tokenizer = bytes_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[SEPARATOR, SEPARATOR, "$A"], special_tokens=[(SEPARATOR, 256)]
    )
    with pytest.raises(ValueError, match="cannot put around a text"):
        gguf_tokenizer(tokenizer, *SAME, 257)


def test_ids_without_a_token() -> None:
    """What the model has beyond the tokenizer, or between its ids, gets a token that no text has."""
    whole = json.loads(bytes_tokenizer().to_str())
    whole["model"]["vocab"]["a"] = 260
    tokenizer = load_from(whole)
    fields = gguf_tokenizer(tokenizer, *SAME, 263)
    assert fields.tokens[260] == "a"
    assert fields.tokens[97] == "[PAD97]"
    unused = {id for id, type in enumerate(fields.types) if type == UNUSED}
    assert unused == set(range(263)) - set(tokenizer.get_vocab().values())
    assert USER_DEFINED not in fields.types


def load_from(whole: dict[str, Any]) -> Tokenizer:
    """A tokenizer from the content of its file."""
    return Tokenizer.from_str(json.dumps(whole))


def broken(change: str) -> Tokenizer:
    """A tokenizer that llama.cpp cannot follow."""
    tokenizer = train_bpe(NASTY_TEXTS, 300)
    if change == "normalizer":
        tokenizer.normalizer = normalizers.NFC()
    elif change == "prefix":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif change == "words":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r"\p{N}{1,2}"), "isolated"), BYTES]
        )
    elif change == "blanks":
        tokenizer.add_tokens([AddedToken("<x>", lstrip=True)])
    else:
        whole = json.loads(tokenizer.to_str())
        if change == "merges":
            whole["model"]["ignore_merges"] = True
        else:
            del whole["model"]["vocab"]["a"]
            whole["model"]["merges"] = [pair for pair in whole["model"]["merges"] if "a" not in "".join(pair)]
            whole["model"]["unk_token"] = "b"
        tokenizer = load_from(whole)
    return tokenizer


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("normalizer", "without a normalizer"),
        ("prefix", "no name for this pre-tokenizer"),
        ("words", "no name for this pre-tokenizer"),
        ("blanks", "take the blanks beside them"),
        ("merges", "ignore_merges"),
        ("unknown", "lacks bytes"),
    ],
)
def test_what_llama_cpp_would_do_otherwise_is_refused(change: str, reason: str) -> None:
    """Nearly the same is not written."""
    with pytest.raises(ValueError, match=reason):
        gguf_tokenizer(broken(change), *SAME, 400)


def test_a_vocabulary_larger_than_the_model_is_refused() -> None:
    """Ids that have no embedding."""
    with pytest.raises(ValueError, match="ids up to 256, the model only 256 tokens"):
        gguf_tokenizer(bytes_tokenizer(), *SAME, 256)


def test_another_kind_of_tokenizer_is_not_read(tmp_path: Path) -> None:
    """SentencePiece, or a pre-tokenizer that is not known here: named, not guessed."""
    import gguf

    for model, pre in (("llama", "default"), ("gpt2", "qwen2")):
        file = tmp_path / f"{pre}.gguf"
        writer = gguf.GGUFWriter(file, "llama")
        writer.add_tokenizer_model(model)
        writer.add_tokenizer_pre(pre)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        with pytest.raises(ValueError, match=f"tokenizer.ggml.pre='{pre}' is not supported"):
            read_tokenizer(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"begin": 9}, "9 is the id of none of its 4 tokens"),
        ({"types": [1, 1, 1, UNUSED]}, "token 3, which opens or ends a text, is marked as unused"),
        ({"types": [1, 1]}, "it has 4 tokens, and tokenizer.ggml.token_type not as many"),
        ({"merges": ["a x"]}, "the merge 'a x' is not one of two tokens to a third"),
        ({"merges": ["ab"]}, "the merge 'ab' is not one of two tokens to a third"),
    ],
)
def test_a_damaged_tokenizer_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """One line with the file and what is wrong in it; without the change the file is read."""
    import gguf

    def written(name: str, begin: int = 3, types: Any = (1, 1, 1, 3), merges: Any = ("a b",)) -> Path:
        file = tmp_path / name
        writer = gguf.GGUFWriter(file, "llama")
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(["a", "b", "ab", "<s>"])
        writer.add_token_types(list(types))
        writer.add_token_merges(list(merges))
        writer.add_bos_token_id(begin)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return file

    assert read_tokenizer(written("whole.gguf")).encode("ab").ids == [3, 2]
    file = written("damaged.gguf", **change)
    with pytest.raises(ValueError, match=re.escape(f"{file}: its tokenizer is damaged: {message}")):
        read_tokenizer(file)


def test_a_separator_must_be_in_the_vocabulary(tmp_path: Path) -> None:
    """The file's own token is the default; another one must exist."""
    directory = export(bytes_tokenizer(), tmp_path)
    with pytest.raises(ValueError, match="has no '<s>'"):
        read_tokenizer(directory / "model.gguf", "<s>")
