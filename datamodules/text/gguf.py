"""Tokenizers in GGUF files: byte-level BPE with one of the pre-tokenizers that are known on both sides."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, processors

from datamodules.text.tokenizer import with_separator

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Kinds of tokens (`llama_token_type`): of the vocabulary; special; found in every text; no token at all."""

_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": _GPT2,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _GPT2]},
    "llama-bpe": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": _LLAMA3_WORDS}, "behavior": "Isolated", "invert": False},
            {**_GPT2, "use_regex": False},
        ],
    },
}
"""llama.cpp's names (`tokenizer.ggml.pre`, in `src/llama-vocab.cpp`) of what tokenizer.json writes out."""
WHOLE_WORDS = ("llama-bpe",)
"""Those with which llama.cpp takes a word that is in the vocabulary as it is (`ignore_merges`)."""


def no_merges(separator: str) -> list[str]:
    """What stands for an empty list of merges, which llama.cpp does not load: one that no text can come to.

    Merges begin with single characters, and no others make the name of a special token.
    """
    return [f"{separator} {separator}"]


def open_gguf(file: Path) -> Any:
    """The `gguf.GGUFReader` of a file.

    Raises:
        ValueError: it is no GGUF file, or not all of one.
        ImportError: the package gguf is missing.
    """
    import gguf

    try:
        return gguf.GGUFReader(file)
    except (ValueError, IndexError, KeyError) as error:  # whatever it stumbles over
        raise ValueError(f"{file} is not a whole GGUF file: {error}") from error


@dataclass(frozen=True)
class OwnTokenizer:
    """A tokenizer as the file has it, and the tokens that open a text and end one."""

    tokenizer: Tokenizer
    begin: str
    end: str


def read_tokenizer(file: Path, separator: str | None = None) -> Tokenizer:
    """The tokenizer of a GGUF file, made to put `separator` in front of a text as all do here.

    `separator`: None means the token that opens a text in the file.

    Raises:
        ValueError: as `read_own_tokenizer`, or the vocabulary lacks the separator.
    """
    own = read_own_tokenizer(file)
    if separator is not None and own.tokenizer.token_to_id(separator) is None:
        raise ValueError(f"{file}: the vocabulary has no {separator!r}")
    return with_separator(own.tokenizer, separator or own.begin)


def read_own_tokenizer(file: Path) -> OwnTokenizer:
    """The tokenizer of a GGUF file, which puts around a text what the file says: often nothing.

    Raises:
        ValueError: the file has another kind of tokenizer, a damaged one, or names no token that opens or ends a text.
    """
    fields = {name: field.contents() for name, field in open_gguf(file).fields.items() if "tokenizer." in name}
    fields = {name.removeprefix("tokenizer.ggml."): value for name, value in fields.items()}
    kind, pre = fields.get("model"), fields.get("pre")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise ValueError(
            f"{file}: tokenizer.ggml.model={kind!r} with tokenizer.ggml.pre={pre!r} is not supported; "
            f"'gpt2' with one of {', '.join(PRE_TOKENIZERS)} is"
        )
    if missing := [name for name in ("merges", "tokens") if not isinstance(fields.get(name), list)]:
        raise ValueError(f"{file} lacks {', '.join(f'tokenizer.ggml.{name}' for name in missing)}")
    ids = [fields[name] for name in ("bos_token_id", "eos_token_id") if name in fields]
    if not ids:
        raise ValueError(f"{file} names no token that opens or ends a text")
    fields.setdefault("token_type", [NORMAL] * len(fields["tokens"]))
    if problem := next(_problems(fields, ids), None):
        raise ValueError(f"{file}: its tokenizer is damaged: {problem}")
    begin, end = fields["tokens"][ids[0]], fields["tokens"][ids[-1]]
    tokenizer = _tokenizer(fields, pre)
    before = [begin] * bool(fields.get("add_bos_token", pre in WHOLE_WORDS))
    behind = [end] * bool(fields.get("add_eos_token", False))
    if before or behind:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *behind],
            pair=[*before, "$A", *behind, *before, "$B", *behind],
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in sorted({*before, *behind})],
        )
    tokenizer.encode_special_tokens = True
    return OwnTokenizer(tokenizer, begin, end)


def _problems(fields: dict[str, Any], ids: list[Any]) -> Iterator[str]:
    """What the library would stumble over; `ids` open and end a text. Takes what stands for no merges away."""
    tokens, types, merges = fields["tokens"], fields["token_type"], fields["merges"]
    if not isinstance(types, list) or len(types) != len(tokens):
        yield f"it has {len(tokens)} tokens, and tokenizer.ggml.token_type not as many"
    for id in ids:
        if not isinstance(id, int) or not 0 <= id < len(tokens):
            yield f"{id} is the id of none of its {len(tokens)} tokens"
        elif types[id] == UNUSED:
            yield f"token {id}, which opens or ends a text, is marked as unused"
    if merges == no_merges(tokens[ids[0]]):
        merges = fields["merges"] = []
    known = {token for token, type in zip(tokens, types, strict=True) if type != UNUSED}
    for merge in merges:
        pair = str(merge).split(" ", 1)
        if not {*pair, "".join(pair)} <= known or len(pair) != 2:
            yield f"the merge {merge!r} is not one of two tokens to a third"


def _tokenizer(fields: dict[str, Any], pre: str) -> Tokenizer:
    tokens, types = fields["tokens"], fields["token_type"]
    vocabulary = {token: id for id, (token, type) in enumerate(zip(tokens, types, strict=True)) if type != UNUSED}
    pairs = [tuple(merge.split(" ", 1)) for merge in fields["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre in WHOLE_WORDS))
    # The library makes the parts of a tokenizer from their description only as a whole.
    whole = json.loads(tokenizer.to_str()) | {"pre_tokenizer": _described(PRE_TOKENIZERS[pre])}
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.decoder = decoders.ByteLevel()
    for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
        added = [token for token, type in zip(tokens, types, strict=True) if type == kind]
        tokenizer.add_tokens([AddedToken(token, special=special, normalized=False) for token in added])
    return tokenizer


def _described(part: dict[str, Any]) -> dict[str, Any]:
    """A pre-tokenizer with the settings that do not matter for ids."""
    if "pretokenizers" in part:
        return {**part, "pretokenizers": [_described(inner) for inner in part["pretokenizers"]]}
    return {**part, "trim_offsets": True} if part["type"] == "ByteLevel" else part
