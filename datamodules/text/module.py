"""The data module for language models: text files in, windows of token sequences out."""

import json
import logging
import os
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Lt, MinLen

from datamodules.base import MicroBatch, WindowDataModule
from datamodules.exclusive import exclusive
from datamodules.text.dataset import TokenDataset
from datamodules.text.files import file_format, list_files, resolve
from datamodules.text.fingerprint import content_digests, digest, signatures, write_atomically
from datamodules.text.settings import TextSettings
from datamodules.text.shards import Shards, obtain_shards
from datamodules.text.tokenise import tokenise
from datamodules.text.tokenizer import SEPARATOR, load_tokenizer, token_byte_lengths

log = logging.getLogger(__name__)


class TextData(WindowDataModule):
    """Documents from `.txt`, `.jsonl` (both also `.gz`) or `.parquet` files, tokenised once into a cache.

    Every document is opened by the separator, then all are laid end to end and cut into sequences. Whole
    documents are held out for validation.
    """

    def __init__(
        self,
        *,
        path: Annotated[str, MinLen(1)],
        sequence_length: Annotated[int, Gt(0)],
        tokenizer: Annotated[str, MinLen(1)] = "bpe",
        vocab_size: Annotated[int, Ge(257)] = 1024,
        separator: Annotated[str, MinLen(1)] = SEPARATOR,
        text_key: Annotated[str, MinLen(1)] = "text",
        val_fraction: Annotated[float, Gt(0), Lt(1)] = 0.05,
        document_mask: bool = False,
        cache_dir: str | None = None,
        **windows: Any,
    ) -> None:
        """What to read and how to cut it; `windows` are the arguments of `WindowDataModule`.

        Args:
            path: a file, a folder (read recursively) or `sample:kjv`.
            sequence_length: tokens that the network reads at once.
            tokenizer: `bytes`, `bpe` (trained on the training documents), or a `tokenizer.json`, its folder, or
                a GGUF file.
            vocab_size: tokens of a trained `bpe`: 256 bytes, the merges and the separator. Others bring their
                own.
            separator: the special token that opens each document; a loaded tokenizer must have it.
            text_key: where a JSON line or Parquet row holds its text.
            val_fraction: share of the documents held out.
            document_mask: let no token attend to other documents in its sequence.
            cache_dir: where token shards are kept; None means `$MATMILL_CACHE` or `~/.cache/matmill`.
        """
        super().__init__(**windows)
        self.path = path
        self.sequence_length = sequence_length
        self.settings = TextSettings(text_key, tokenizer, vocab_size, separator, val_fraction)
        self.document_mask = document_mask
        cache = cache_dir or os.environ.get("MATMILL_CACHE") or "~/.cache/matmill"
        self.cache = Path(cache).expanduser() / "text"
        self.shards: Shards | None = None

    def prepare(self) -> None:
        """Read and tokenise the text unless the cache has it; set `train_set`, `val_set`, `fingerprint`.

        Raises:
            FileNotFoundError: `path` or the tokenizer is not there.
            ValueError: a file cannot be read, or the text is too short for one sequence.
        """
        if self.shards is not None:
            return
        # Said outright, the library does not print a warning each time the loader starts a worker process.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        shards = self._shards()
        facts = shards.facts
        for warning in facts["warnings"]:
            log.warning("data.path=%s: %s", self.path, warning)
        for split, needed in (("train", self.sequence_length + 1), ("val", 2)):
            if facts[f"{split}_tokens"] < needed:
                raise ValueError(
                    f"data.path={self.path}: the {split} text has {facts[f'{split}_tokens']} tokens, at least"
                    f" {needed} are needed (data.sequence_length={self.sequence_length}); bring more text"
                )
        tokenizer = load_tokenizer(shards.directory / "tokenizer.json", facts["separator"])
        byte_lengths = token_byte_lengths(tokenizer)
        self.train_set, self.val_set = (
            TokenDataset(
                shards.stream(split),
                sequence_length=self.sequence_length,
                byte_lengths=byte_lengths,
                separator_id=facts["separator_id"],
                pad_last=split == "val",
                documents=self.document_mask,
            )
            for split in ("train", "val")
        )
        self.fingerprint = facts["fingerprint"]
        self.shards = shards

    def _shards(self) -> Shards:
        """The token shards of the files as they are now."""
        root = resolve(self.path)
        files, others = list_files(root)
        if others:
            example = others[0].name
            log.warning("data.path=%s: ignored %d files of other kinds (%s)", self.path, len(others), example)
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"cannot make {self.cache} ({error.strerror}); set data.cache_dir") from error
        before = signatures(files)
        memory = self.cache / "contents" / f"{digest(str(root))[:32]}.json"
        with exclusive(memory):
            digests = content_digests(files, memory)
        contents = [[file_format(file), content] for file, content in zip(files, digests, strict=True)]

        def build(directory: Path) -> None:
            tokenise(files, self.settings, directory)
            if signatures(files) != before:
                raise ValueError(f"data.path={self.path}: a file was changed while it was read; start again")

        return obtain_shards(self.cache / "shards" / self.settings.key(contents), build)

    @property
    def facts(self) -> dict[str, int]:
        """`vocab_size`: the ids that the tokenizer can give."""
        return {"vocab_size": self._prepared().facts["vocab_size"]}

    def outline(self) -> MicroBatch:
        """`tokens` and `targets` (B, T), and `documents` where they are told apart, without reading the text."""
        shape = (self.micro_batch_size, self.sequence_length)
        names = ("tokens", "targets", *(("documents",) if self.document_mask else ()))
        batch: MicroBatch = {name: torch.empty(shape, dtype=torch.int64, device="meta") for name in names}
        return batch | {"units": shape[0] * shape[1], "bytes": 0}

    def save(self, directory: Path) -> None:
        """Write `tokenizer.json` and `data.json`, each whole or not at all."""
        shards = self._prepared()
        facts = {name: value for name, value in shards.facts.items() if name not in ("dtype", "warnings")}
        facts |= {"sequence_length": self.sequence_length, "document_mask": self.document_mask}
        source = (shards.directory / "tokenizer.json").read_text(encoding="utf-8")
        write_atomically(directory / "tokenizer.json", source)
        write_atomically(directory / "data.json", json.dumps(facts, indent=1) + "\n")

    def _prepared(self) -> Shards:
        if self.shards is None:
            raise RuntimeError("TextData.prepare() must be called first")
        return self.shards
