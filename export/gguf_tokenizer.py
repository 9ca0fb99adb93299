"""A run's tokenizer as the fields `tokenizer.ggml.*` of a GGUF file."""

import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from datamodules.text.gguf import CONTROL, NORMAL, PRE_TOKENIZERS, UNUSED, USER_DEFINED, WHOLE_WORDS, no_merges
from datamodules.text.tokenizer import byte_characters


@dataclass(frozen=True)
class GgufTokenizer:
    """What llama.cpp needs to tokenize as in training.

    Attributes:
        pre: its name of the pre-tokenizer.
        tokens: by id.
        types: of each (`datamodules.text.gguf`).
        merges: the two parts with a blank between them, by rank.
        begin: the id of the token that opens a text.
        end: that of the one which ends it.
        adds_begin: whether it is put in front of every text.
        adds_end: whether that is put behind.
    """

    pre: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    begin: int
    end: int
    adds_begin: bool
    adds_end: bool

    def write(self, writer: Any) -> None:
        """Add the fields to a `gguf.GGUFWriter`."""
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(self.begin)
        writer.add_eos_token_id(self.end)
        writer.add_pad_token_id(self.end)
        writer.add_add_bos_token(self.adds_begin)
        writer.add_add_eos_token(self.adds_end)
        writer.add_add_space_prefix(False)


def gguf_tokenizer(tokenizer: Tokenizer, begin: int | None, end: int | None, size: int) -> GgufTokenizer:
    """The fields for a model with `size` embedded tokens; ids without a token get one that no text has.

    `begin`, `end`: the tokens that open a text and end one.

    Raises:
        ValueError: llama.cpp would tokenize otherwise, or the vocabulary is larger than the model's.
    """
    if begin is None or end is None:
        raise ValueError("llama.cpp must know a token that opens a text and one that ends it")
    whole = json.loads(tokenizer.to_str())
    pre = _pre_tokenizer(whole)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    highest = max(*vocabulary.values(), begin, end)
    if highest >= size:
        raise ValueError(f"the tokenizer has ids up to {highest}, the model only {size} tokens")
    tokens = [f"[PAD{id}]" for id in range(size)]  # as in llama.cpp's own converter
    types = [UNUSED] * size
    for token, id in vocabulary.items():
        tokens[id], types[id] = token, NORMAL
    for token in whole["added_tokens"]:
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    merges = [" ".join(pair) for pair in whole["model"]["merges"]] or no_merges(tokens[begin])
    return GgufTokenizer(pre, tokens, types, merges, begin, end, *_around(tokenizer, begin, end))


def _around(tokenizer: Tokenizer, begin: int, end: int) -> tuple[bool, bool]:
    """Whether the tokenizer puts `begin` in front of a text and `end` behind."""
    bare, whole = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    for before, behind in ((False, False), (True, False), (False, True), (True, True)):
        if whole == [begin] * before + bare + [end] * behind:
            return before, behind
    raise ValueError(f"llama.cpp cannot put around a text what the tokenizer does: {tokenizer.encode('a').tokens}")


def _pre_tokenizer(whole: dict[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer of a tokenizer.json that it can follow exactly."""
    model = whole["model"]
    settings = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    if model["type"] != "BPE" or any(model.get(name) for name in settings) or whole["normalizer"] is not None:
        raise ValueError("only plain byte-level BPE without a normalizer can be written into GGUF")
    # Without an unknown token both leave out the bytes that the vocabulary lacks.
    if model["unk_token"] is not None and not model["vocab"].keys() >= set(byte_characters()):
        raise ValueError(f"the vocabulary lacks bytes, for which llama.cpp does not put {model['unk_token']!r}")
    trimming = [token["content"] for token in whole["added_tokens"] if _trims(token)]
    if trimming:
        raise ValueError(f"llama.cpp knows no tokens that take the blanks beside them or only whole words: {trimming}")
    structure = _essential(whole["pre_tokenizer"])
    pre = next((name for name, known in PRE_TOKENIZERS.items() if known == structure), None)
    if pre is None:
        raise ValueError(
            "llama.cpp has no name for this pre-tokenizer that is known here "
            f"(known are {', '.join(PRE_TOKENIZERS)}): {json.dumps(structure)[:200]}"
        )
    if bool(model.get("ignore_merges")) != (pre in WHOLE_WORDS):
        raise ValueError(f"with this pre-tokenizer ({pre}) llama.cpp has ignore_merges={pre in WHOLE_WORDS}")
    return pre


def _trims(token: dict[str, Any]) -> bool:
    """Whether a token that is found in texts does more than that."""
    return not token["special"] and any(token[name] for name in ("lstrip", "rstrip", "single_word"))


def _essential(part: Any) -> Any:
    """A pre-tokenizer without the settings that do not matter for ids."""
    if isinstance(part, dict):
        return {name: _essential(value) for name, value in part.items() if name != "trim_offsets"}
    return [_essential(inner) for inner in part] if isinstance(part, list) else part
