"""Documents out of files: plain text, JSON Lines and Parquet, one file or a folder of them."""

import gzip
import json
import logging
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

log = logging.getLogger(__name__)

SAMPLES = Path(__file__).parents[1] / "samples"
FORMATS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def resolve(path: str) -> Path:
    """The file or folder that `data.path` names; `sample:NAME` names a sample shipped with matmill.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: no text sample has this name.
    """
    if path.startswith("sample:"):
        name = path.removeprefix("sample:")
        found = SAMPLES / f"{name}.jsonl.gz"
        if not found.is_file():
            known = ", ".join(f"sample:{p.name.split('.')[0]}" for p in sorted(SAMPLES.glob("*.jsonl.gz")))
            raise ValueError(f"data.path={path}: no text sample of this name; there is {known}")
        return found
    found = Path(path).expanduser().resolve()
    if not found.exists():
        raise FileNotFoundError(f"data.path={path}: no such file or folder ({found})")
    return found


def file_format(path: Path) -> str | None:
    """Which of `FORMATS` the name of a file ends with; None if it is another kind of file."""
    return next((ending for ending in FORMATS if path.name.lower().endswith(ending)), None)


def list_files(root: Path) -> tuple[list[Path], list[Path]]:
    """All text files at `root` (itself, or below it, sorted by path) and the files of other kinds.

    Raises:
        ValueError: none of the files can be read as text.
    """
    if root.is_file():
        files = [root]
    else:
        found = (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
        files = sorted(found, key=lambda file: file.relative_to(root).as_posix())
    texts = [file for file in files if file_format(file)]
    others = [file for file in files if not file_format(file)]
    if not texts:
        seen = f"its {len(others)} files (such as {others[0].name})" if others else "it"
        raise ValueError(f"data.path={root}: cannot read {seen} as text; supported are {', '.join(FORMATS)}")
    return texts, others


def read_documents(files: Iterable[Path], text_key: str) -> Iterator[str]:
    """Every document of the files in order, empty ones too, held one at a time (Parquet: a batch).

    A `.txt` file is one document, a `.jsonl` line or a `.parquet` row is one document under `text_key`. The
    text is passed on unchanged, line ends included; only a byte order mark at the start of a file is dropped.

    Raises:
        ValueError: bytes that are not UTF-8, broken JSON, a missing key, a value that is no string, a damaged
            archive; the message names the file and the byte offset, line or row.
    """
    for file in files:
        ending = file_format(file)
        if ending == ".parquet":
            yield from _parquet_rows(file, text_key)
            continue
        try:
            with _open(file) as stream:
                if ending in (".txt", ".txt.gz"):
                    yield _decode(stream.read().removeprefix(BYTE_ORDER_MARK), file, 0)
                else:
                    yield from _json_lines(stream, file, text_key)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{file}: the gzip file is truncated or damaged ({error})") from error


def _open(file: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if it is a gzip file."""
    return cast(IO[bytes], gzip.open(file)) if file.name.lower().endswith(".gz") else file.open("rb")


def _decode(raw: bytes, file: Path, offset: int) -> str:
    """UTF-8 to text; `offset` is the place of `raw` in the (unpacked) file."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = offset + error.start
        raise ValueError(
            f"{file}: not UTF-8 at byte offset {place} (0x{raw[error.start]:02x}); convert the file to UTF-8"
        ) from error


def _json_lines(stream: Iterable[bytes], file: Path, text_key: str) -> Iterator[str]:
    """The texts of a JSON Lines file; blank lines are passed over."""
    offset = 0
    for number, raw in enumerate(stream, start=1):
        start, offset = offset, offset + len(raw)
        if number == 1 and raw.startswith(BYTE_ORDER_MARK):
            raw, start = raw.removeprefix(BYTE_ORDER_MARK), len(BYTE_ORDER_MARK)
        line = _decode(raw, file, start)
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}, line {number}: not valid JSON ({error.msg}, column {error.colno})") from error
        if not isinstance(record, dict) or text_key not in record:
            keys = ", ".join(map(str, record)) if isinstance(record, dict) else type(record).__name__
            raise ValueError(f"{file}, line {number}: no key {text_key!r} (found: {keys}); set data.text_key")
        yield _checked_text(record[text_key], f"{file}, line {number}", text_key)


def _parquet_rows(file: Path, text_key: str) -> Iterator[str]:
    """The texts of one column of a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    row = 0
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            names = table.schema_arrow.names
            if text_key not in names:
                found = ", ".join(names)
                raise ValueError(f"{file}: no column {text_key!r} (found: {found}); set data.text_key")
            for batch in table.iter_batches(batch_size=256, columns=[text_key]):
                for value in batch.column(0):
                    yield _checked_text(value.as_py(), f"{file}, row {row}", text_key)
                    row += 1
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}, row {row}: not UTF-8 at byte offset {error.start} of the text") from error
    except pyarrow.ArrowException as error:
        raise ValueError(f"{file}: not a readable Parquet file ({str(error).splitlines()[0]})") from error


def _checked_text(value: Any, place: str, text_key: str) -> str:
    """The value if it is text with a UTF-8 form (JSON can spell half a surrogate pair, which has none)."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"{place}: {text_key!r} has half a surrogate pair at {error.start}") from error
        return value
    raise ValueError(f"{place}: {text_key!r} holds {type(value).__name__}, not text")
