"""Where the class folders are: a folder, an archive unpacked once into the cache, or a shipped sample."""

import hashlib
import os
import shutil
import stat
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from rich.progress import track

from datamodules.exclusive import exclusive

SAMPLES = Path(__file__).parents[1] / "samples"


def resolve(path: str, cache: Path) -> Path:
    """The folder with `train/` (and `val/`) that `data.path` names; archives are unpacked below `cache`.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: it is no folder or zip archive with `train/CLASS/IMAGE`.
    """
    if path.startswith("sample:"):
        found = SAMPLES / f"{path.removeprefix('sample:')}.zip"
        if not found.is_file():
            known = ", ".join(f"sample:{archive.stem}" for archive in sorted(SAMPLES.glob("*.zip")))
            raise ValueError(f"data.path={path}: no image sample of this name; there is {known}")
    else:
        found = Path(path).expanduser().resolve()
        if not found.exists():
            raise FileNotFoundError(f"data.path={path}: no such file or folder ({found})")
    if found.is_file():
        found = unpack(found, cache)
    inside = [folder for folder in found.iterdir() if folder.is_dir() and not folder.name.startswith((".", "__"))]
    if not (found / "train").is_dir() and len(inside) == 1:
        found = inside[0]  # archives often hold one folder that holds everything
    if not (found / "train").is_dir():
        raise ValueError(f"data.path={path}: expected train/CLASS/IMAGE in {found}, which has no folder train")
    return found


def unpack(archive: Path, cache: Path) -> Path:
    """Unpack a zip archive into a folder of `cache` named after its contents; an unpacked one is used again.

    Raises:
        ValueError: the file is no zip archive, or a member would be written outside the folder.
    """
    if not zipfile.is_zipfile(archive):
        raise ValueError(f"data.path={archive}: neither a folder nor a zip archive")
    with zipfile.ZipFile(archive) as opened:
        members = [member for member in opened.infolist() if not member.is_dir()]
        for member in members:
            _refuse_outside(archive, member)
        listing = "\n".join(f"{member.filename} {member.file_size} {member.CRC}" for member in members)
        target = cache / f"{archive.stem}-{hashlib.sha256(listing.encode()).hexdigest()[:16]}"
        if target.is_dir():
            return target
        cache.mkdir(parents=True, exist_ok=True)
        with exclusive(target):
            if not target.is_dir():
                _unpack_members(archive, opened, members, target)
    return target


def _unpack_members(archive: Path, opened: zipfile.ZipFile, members: list[zipfile.ZipInfo], target: Path) -> None:
    """Unpack into a folder beside `target` that is then renamed."""
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for member in track(members, f"Unpacking {archive.name}", transient=True, disable=not sys.stdout.isatty()):
            _extract(archive, opened, member, unfinished)
        try:
            os.rename(unfinished, target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _extract(archive: Path, opened: zipfile.ZipFile, member: zipfile.ZipInfo, directory: Path) -> None:
    try:
        opened.extract(member, directory)
    except (
        zipfile.BadZipFile,
        RuntimeError,
        NotImplementedError,
    ) as error:  # damaged, encrypted, unknown method
        raise ValueError(f"data.path={archive}: cannot unpack {member.filename} ({error})") from error


def _refuse_outside(archive: Path, member: zipfile.ZipInfo) -> None:
    """Raise for names that leave the folder and for links, which could lead out of it."""
    name = PurePosixPath(member.filename.replace("\\", "/"))
    link = stat.S_ISLNK(member.external_attr >> 16)
    if name.is_absolute() or ".." in name.parts or ":" in name.parts[0] or link:
        raise ValueError(f"data.path={archive}: refused, its member {member.filename} leads outside the archive")
