"""Reading documents: every format, and what is said about unfit ones."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamodules.text.files import list_files, read_documents, resolve
from datamodules.text.split import survey

TEXTS = ["first\r\nline", "emoji \U0001f600 and \u4e2d\u6587", "zero \x00 byte"]


def read(path: Path, text_key: str = "text") -> list[str]:
    """All documents of one file."""
    return list(read_documents([path], text_key))


def lines(texts: list[str], key: str = "text") -> bytes:
    """JSON Lines of the texts."""
    return "".join(json.dumps({"id": 1, key: text}) + "\n" for text in texts).encode()


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".TXT"])
def test_plain_text_file_is_one_document_unchanged(tmp_path: Path, ending: str) -> None:
    """Line ends, NUL bytes and characters beyond the BMP arrive as they are in the file."""
    raw = "".join(TEXTS).encode()
    file = tmp_path / f"a{ending}"
    file.write_bytes(gzip.compress(raw) if ending == ".txt.gz" else raw)
    assert read(file) == ["".join(TEXTS)]


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_json_lines_have_one_document_per_line(tmp_path: Path, ending: str) -> None:
    """The configured key is read, blank lines are passed over."""
    raw = lines(TEXTS, "body") + b"\n"
    file = tmp_path / f"a{ending}"
    file.write_bytes(gzip.compress(raw) if ending.endswith("gz") else raw)
    assert read(file, "body") == TEXTS


def test_parquet_has_one_document_per_row(tmp_path: Path) -> None:
    """All rows come in order, across record batches."""
    texts = [f"row {i}" for i in range(1000)]
    pq.write_table(pa.table({"text": texts, "n": list(range(1000))}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == texts


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    """Files saved with a UTF-8 byte order mark read like those without one."""
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfabc")
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines(["abc"]))
    assert read(tmp_path / "a.txt") == read(tmp_path / "a.jsonl") == ["abc"]


def test_folder_is_read_recursively_in_sorted_order(tmp_path: Path) -> None:
    """The order depends on the relative paths only, and files of other kinds are returned apart."""
    for name in ("b.txt", "a/z.txt", "a/b.jsonl", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    texts, others = list_files(tmp_path)
    assert [file.relative_to(tmp_path).as_posix() for file in texts] == ["a/b.jsonl", "a/z.txt", "b.txt"]
    assert [file.name for file in others] == ["notes.md"]


@pytest.mark.parametrize("name", ["picture.png", "folder/picture.png", "folder/"])
def test_nothing_readable_is_an_error(tmp_path: Path, name: str) -> None:
    """A path without any text file is refused with the kinds that can be read."""
    (tmp_path / "folder").mkdir()
    if not name.endswith("/"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ValueError, match=r"cannot read .* supported are \.txt"):
        list_files(tmp_path / name.split("/")[0])


def test_invalid_utf8_names_file_and_offset(tmp_path: Path) -> None:
    """The offset counts from the start of the file, for JSON Lines too."""
    (tmp_path / "a.txt").write_bytes(b"0123456\x92abc")
    with pytest.raises(ValueError, match=r"a\.txt: not UTF-8 at byte offset 7 \(0x92\)"):
        read(tmp_path / "a.txt")
    good = lines(["ok"])
    (tmp_path / "a.jsonl").write_bytes(good + b'{"text": "\xff"}\n')
    with pytest.raises(ValueError, match=rf"a\.jsonl: not UTF-8 at byte offset {len(good) + 10} "):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{broken", "line 2: not valid JSON"),
        ('{"other": "x"}', r"line 2: no key 'text' \(found: other\); set data\.text_key"),
        ('["text"]', r"line 2: no key 'text' \(found: list\)"),
        ('{"text": 3}', "line 2: 'text' holds int"),
        ('{"text": null}', "line 2: 'text' holds NoneType"),
        ('{"text": "\\ud800"}', "line 2: 'text' has half a surrogate pair at 0"),
    ],
)
def test_unfit_json_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    """The message leads to the line."""
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n' + line + "\n")
    with pytest.raises(ValueError, match=said):
        read(tmp_path / "a.jsonl")


def test_unfit_parquet_is_named(tmp_path: Path) -> None:
    """A missing column, a null, a column of numbers and a file that is not Parquet."""
    pq.write_table(pa.table({"body": ["x", None], "number": [1, 2]}), tmp_path / "a.parquet")
    for key, said in (
        ("text", r"a\.parquet: no column 'text' \(found: body, number\)"),
        ("body", "row 1: 'body' holds NoneType"),
        ("number", "row 0: 'number' holds int"),
    ):
        with pytest.raises(ValueError, match=said):
            read(tmp_path / "a.parquet", key)
    (tmp_path / "b.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match=r"b\.parquet: not a readable Parquet file"):
        read(tmp_path / "b.parquet")


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz"])
@pytest.mark.parametrize("damage", ["truncated", "no gzip"])
def test_damaged_gzip_is_named(tmp_path: Path, name: str, damage: str) -> None:
    """Half a download is not taken for a shorter text."""
    whole = gzip.compress(lines([f"text {i * i}" for i in range(1000)]))
    (tmp_path / name).write_bytes(whole[: len(whole) // 2] if damage == "truncated" else b"plain")
    with pytest.raises(ValueError, match=rf"{name}: the gzip file is truncated or damaged"):
        read(tmp_path / name)


def test_missing_path_and_unknown_sample() -> None:
    """The key and, for samples, the existing names are said."""
    with pytest.raises(FileNotFoundError, match=r"data\.path=/no/where: no such file"):
        resolve("/no/where")
    with pytest.raises(ValueError, match=r"data\.path=sample:mnist5k: .* there is sample:kjv"):
        resolve("sample:mnist5k")


def test_king_james_sample_is_complete() -> None:
    """The shipped text has every chapter of the 66 books, in order."""
    with gzip.open(resolve("sample:kjv")) as stream:
        names = [json.loads(line)["id"] for line in stream]
    texts = read(resolve("sample:kjv"))
    books = list(dict.fromkeys(name.rsplit(" ", 1)[0] for name in names))
    assert (len(names), len(set(names)), len(books)) == (1189, 1189, 66)
    assert (names[0], names[-1]) == ("Genesis 1", "Revelation 22")
    assert texts[0].startswith("In the beginning God created the heaven and the earth.\n")
    assert survey(texts, 0.05).empty == 0
    assert sum(text.count("\n") + 1 for text in texts) == 31103  # verses
