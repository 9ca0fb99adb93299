"""From documents to token shards, in bounded memory and with a progress bar."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from tokenizers import Tokenizer

from datamodules.text.files import read_documents
from datamodules.text.fingerprint import digest
from datamodules.text.settings import TextSettings
from datamodules.text.shards import SPLITS, smallest_dtype
from datamodules.text.split import Census, is_empty, survey
from datamodules.text.tokenizer import is_byte_level, token_byte_lengths, vocabulary_size

PIECE = 2**15
BATCH = 2**20
"""Characters per encoded piece of a document and per batch of pieces (some 100 bytes of memory per token)."""
Piece = tuple[bool, bool, str]
"""(held out, opens a document, text)."""
_CUT = re.compile(r"[^\W_](?=[ \n])")


@dataclass
class _Count:
    """Running totals of one shard."""

    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    token_bytes: int = 0
    content: Any = field(default_factory=hashlib.sha256)


def tokenise(files: list[Path], settings: TextSettings, directory: Path) -> None:
    """Write `train.bin`, `val.bin`, `tokenizer.json` and, last, `data.json` into `directory`.

    The files are read two times (three if a tokenizer is trained) rather than held in memory.

    Raises:
        ValueError: a file, the tokenizer or the text is unfit (see `read_documents`, `load_tokenizer`,
            `survey`).
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        reading = progress.add_task("Reading text", total=None)
        census = survey(read_documents(files, settings.text_key), settings.val_fraction)
        progress.remove_task(reading)

        def read(description: str, whole: bool) -> Iterator[Piece]:
            task = progress.add_task(description, total=census.characters)
            for text in read_documents(files, settings.text_key):
                for held_out, part in () if is_empty(text) else census.split.parts(text):
                    for number, piece in enumerate([part] if whole else pieces(part)):
                        yield held_out, number == 0, piece
                        progress.advance(task, len(piece))

        training = read("Training the tokenizer", whole=False)
        tokenizer = settings.make_tokenizer(piece for held_out, _, piece in training if not held_out)
        whole = not is_byte_level(tokenizer)  # others may treat the start of each piece as that of a text
        counts = _write_shards(read("Tokenising", whole), tokenizer, settings.separator, directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    facts = _facts(counts, census, tokenizer, settings)
    (directory / "data.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def pieces(text: str, limit: int = PIECE) -> Iterator[str]:
    """Cut a long text into pieces of `limit` characters or more whose tokens are those of the whole.

    The cuts lie between a letter or digit and a blank or line feed. Expressions that split words as GPT-2's
    or Llama 3's do never match across such a place.
    """
    start = 0
    while len(text) - start > limit and (match := _CUT.search(text, start + limit)):
        yield text[start : match.end()]
        start = match.end()
    yield text[start:]


def _batches(stream: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Lists of pieces with about `BATCH` characters."""
    batch: list[Piece] = []
    size = 0
    for held_out, opens, text in stream:
        batch.append((held_out, opens, text))
        size += len(text)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_shards(stream: Iterable[Piece], tokenizer: Tokenizer, separator: str, directory: Path) -> dict[str, _Count]:
    """Encode all pieces and append them to their shards; the totals by split."""
    dtype = smallest_dtype(vocabulary_size(tokenizer))
    lengths = token_byte_lengths(tokenizer)
    opening = tokenizer.token_to_id(separator)
    counts = {split: _Count() for split in SPLITS}
    with ExitStack() as stack:
        streams = {split: stack.enter_context((directory / f"{split}.bin").open("wb")) for split in SPLITS}
        for batch in _batches(stream):
            encodings = tokenizer.encode_batch_fast([piece for _, _, piece in batch], add_special_tokens=False)
            for (held_out, opens, piece), encoding in zip(batch, encodings, strict=True):
                ids = np.array([opening] * opens + encoding.ids, dtype=dtype)
                if np.count_nonzero(ids == opening) != opens:
                    raise ValueError(f"data.tokenizer: plain text was encoded as the separator {separator!r}")
                split = SPLITS[held_out]
                raw, count = ids.tobytes(), counts[split]
                streams[split].write(raw)
                count.content.update(raw)
                count.documents += opens
                count.tokens += len(ids)
                count.bytes += len(piece.encode())
                count.token_bytes += int(lengths[ids].sum())
    return counts


def _facts(counts: dict[str, _Count], census: Census, tokenizer: Tokenizer, settings: TextSettings) -> dict[str, Any]:
    """Content of `data.json`. The fingerprint covers the tokens themselves and what they stand for."""
    vocabulary = digest(tokenizer.get_vocab(with_added_tokens=True))
    facts: dict[str, Any] = {
        "kind": "text",
        "vocab_size": vocabulary_size(tokenizer),
        "tokenizer": settings.tokenizer,
        "separator": settings.separator,
        "separator_id": tokenizer.token_to_id(settings.separator),
        "dtype": smallest_dtype(vocabulary_size(tokenizer)),
        "fingerprint": digest([counts[split].content.hexdigest() for split in SPLITS] + [vocabulary]),
    }
    for split in SPLITS:
        facts |= {f"{split}_{name}": getattr(counts[split], name) for name in ("documents", "tokens", "bytes")}
    return facts | {"warnings": list(_warnings(counts, census, facts, settings))}


def _warnings(
    counts: dict[str, _Count], census: Census, facts: dict[str, Any], settings: TextSettings
) -> Iterator[str]:
    """What the user should know about this text; told at every start."""
    total = sum(count.bytes for count in counts.values())
    spelled = sum(count.token_bytes for count in counts.values())
    share = counts["val"].bytes / total
    if census.empty:
        yield f"left out {census.empty} empty documents"
    if census.split.threshold is None:
        yield f"there is only one document: its last {share:.1%} are held out for validation"
    elif not settings.val_fraction / 3 <= share <= settings.val_fraction * 3:
        held_out = f"{counts['val'].documents} of {census.documents} documents"
        yield f"held out are {held_out}, {share:.1%} of the text (data.val_fraction={settings.val_fraction})"
    if settings.tokenizer == "bpe" and facts["vocab_size"] < settings.vocab_size:
        yield f"the text yields only {facts['vocab_size']} tokens (data.vocab_size={settings.vocab_size})"
    if abs(spelled - total) > total / 100:
        yield f"the tokens spell {spelled} bytes of a text of {total}: bits per byte are approximate"
