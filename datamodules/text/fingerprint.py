"""Hashes of file contents, remembered so that an unchanged file is not read again at the next start."""

import hashlib
import json
import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

RACE_S = 2.0
"""A file changed this recently (seconds) is hashed again next time: another change could leave its times."""


def signature(file: Path) -> list[int]:
    """What changes whenever a file is written: size, modification and status-change time (ns), inode."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def signatures(files: Sequence[Path]) -> list[list[int]]:
    """The signature of each file."""
    return [signature(file) for file in files]


def digest(value: Any) -> str:
    """SHA-256 (hexadecimal) of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """SHA-256 (hexadecimal) of the bytes of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_digests(files: Sequence[Path], memory: Path) -> list[str]:
    """SHA-256 of each file in order; those whose signature the JSON file `memory` has are not read."""
    known = _read(memory)
    remembered: dict[str, Any] = {}
    digests = []
    for file in files:
        started, mark = time.time(), signature(file)
        entry = known.get(str(file))
        content = entry[1] if entry and entry[0] == mark else file_digest(file)
        digests.append(content)
        if mark[1] / 1e9 < started - RACE_S:
            remembered[str(file)] = [mark, content]
    if remembered != known:
        with suppress(OSError):  # a cache that others filled may be read-only
            write_atomically(memory, json.dumps(remembered))
    return digests


def write_atomically(file: Path, text: str) -> None:
    """Write a small text file so that readers see the old or the new content, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _read(memory: Path) -> dict[str, Any]:
    """The remembered digests; none if the file is missing or damaged."""
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
