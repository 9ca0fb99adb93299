"""Archives: unpacked once, refused when they would write elsewhere."""

import stat
import zipfile

import pytest

from datamodules.images.archive import resolve, unpack
from tests.datamodules.images.images import write_folder


def make_zip(path, members: dict[str, bytes]):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_zip_is_unpacked_once_and_again_when_changed(tmp_path):
    """The same archive is not unpacked twice, a changed one is, and nothing unfinished stays behind."""
    archive = make_zip(tmp_path / "set.zip", {"inner/train/a/1.png": b"1"})
    cache = tmp_path / "cache"
    root = resolve(str(archive), cache)
    assert root.name == "inner"
    (root / "train/a/1.png").write_bytes(b"mark")
    assert (resolve(str(archive), cache) / "train/a/1.png").read_bytes() == b"mark"
    make_zip(archive, {"inner/train/a/1.png": b"2"})
    assert (resolve(str(archive), cache) / "train/a/1.png").read_bytes() == b"2"
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    "name", ["../evil.png", "/tmp/evil.png", "train/../../evil.png", "..\\evil.png", "C:/evil.png"]
)
def test_members_that_lead_outside_are_refused(tmp_path, name):
    """Nothing of such an archive is written."""
    archive = make_zip(tmp_path / "set.zip", {"train/a/1.png": b"1", name: b"evil"})
    with pytest.raises(ValueError, match="leads outside the archive"):
        unpack(archive, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_links_are_refused(tmp_path):
    """A link could make later members land elsewhere."""
    link = zipfile.ZipInfo("train")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr(link, "/etc")
    with pytest.raises(ValueError, match="member train leads outside"):
        unpack(tmp_path / "set.zip", tmp_path / "cache")


def test_damaged_archives_leave_nothing(tmp_path):
    """A member that fails its checksum is named and no half-unpacked folder is taken for a whole one."""
    archive = make_zip(tmp_path / "set.zip", {"train/a/1.png": b"content"})
    archive.write_bytes(archive.read_bytes().replace(b"content", b"c0ntent"))
    with pytest.raises(ValueError, match=r"cannot unpack train/a/1\.png"):
        unpack(archive, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_is_no_data_set_is_named(tmp_path):
    """A missing path, another kind of file, an unknown sample, a folder without train."""
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        resolve(str(tmp_path / "none"), tmp_path)
    (tmp_path / "a.tar").write_text("x")
    with pytest.raises(ValueError, match="neither a folder nor a zip archive"):
        resolve(str(tmp_path / "a.tar"), tmp_path)
    with pytest.raises(ValueError, match="there is sample:mnist5k"):
        resolve("sample:cifar", tmp_path)
    with pytest.raises(ValueError, match="no folder train"):
        resolve(str(write_folder(tmp_path / "flat", {"a": 1, "b": 1})), tmp_path)
