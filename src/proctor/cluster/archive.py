"""Directories as tar archives, and the checked way back.

Regular files, directories and links travel; pipes, sockets and devices are left out. Each name of a
file with several becomes a file of its own. Ownership does not travel.

What comes back from a node holds names that an agent chose, so nothing is written outside the
directory, no link is followed, and numbers and sizes are bounded.
"""

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from proctor.contained import check_relative, create_below, make_below
from proctor.errors import TrialError

MOST_ENTRIES: Final = 1_000_000
"""Most files, directories and links of one archive."""
MOST_BYTES: Final = 1 << 37
"""Most bytes of one archive: 128 GiB."""
# tarfile keeps the headers of a member in memory.
_LONGEST_NAME: Final = 4096
_DEEPEST: Final = 200
_PERMISSIONS: Final = 0o777


def pack(source: Path, file: BinaryIO, most: int | None = None) -> None:
    """Write a directory, or a single file, as an archive of at most so many bytes.

    Raises:
        TrialError: it would have more.
        OSError: something cannot be read, or changed while it was read.
    """
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        is_directory = source.is_dir()
        for path in _find_below(source) if is_directory else [source]:
            found = path.lstat()
            size = found.st_size if stat.S_ISREG(found.st_mode) else 0
            if most is not None and file.tell() + size > most:
                raise TrialError(f"{source.name}: more than {most:,} bytes")
            _add(tar, path, str(path.relative_to(source)) if is_directory else path.name)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    found = path.lstat()
    member.mode, member.mtime = stat.S_IMODE(found.st_mode), found.st_mtime
    if stat.S_ISLNK(found.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(member)
    elif stat.S_ISDIR(found.st_mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif stat.S_ISREG(found.st_mode):
        with path.open("rb") as content:
            member.size = os.fstat(content.fileno()).st_size
            tar.addfile(member, content)


def _find_below(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _find_below(path)


def unpack(file: BinaryIO, directory: Path) -> None:
    """Write the members of an archive below a directory, which exists, and nowhere else.

    Raises:
        TrialError: a path leads elsewhere, a member is of another kind, or there are too many.
        OSError: it cannot be written.
    """
    n_entries = n_bytes = 0
    modes: list[tuple[Path, int]] = []
    try:
        with tarfile.open(fileobj=file, mode="r|") as tar:
            for member in tar:
                n_entries, n_bytes = n_entries + 1, n_bytes + member.size
                _check_member(member, n_entries, n_bytes)
                if member.isdir():
                    make_below(directory, member.name)
                    # Last: one that nobody may write to would keep its files out.
                    modes.append((directory / member.name, member.mode & _PERMISSIONS))
                else:
                    _write(tar, member, directory)
    except tarfile.TarError as error:
        raise TrialError(f"{directory.name}: what the node sent is damaged: {error}") from error
    for path, mode in reversed(modes):
        # A link in its place was made by a later member: its target is not ours to change.
        if not path.is_symlink():
            path.chmod(mode)


def _check_member(member: tarfile.TarInfo, n_entries: int, n_bytes: int) -> None:
    name = member.name
    if n_entries > MOST_ENTRIES or n_bytes > MOST_BYTES:
        raise TrialError(
            f"a node sent more than {MOST_ENTRIES:,} files or {MOST_BYTES:,} bytes for one trial; "
            "refused"
        )
    if len(name) > _LONGEST_NAME or name.count("/") > _DEEPEST:
        raise TrialError(f"{name[:100]}…: too long or too deep; refused")
    if not (member.isdir() or member.isreg() or member.issym()):
        raise TrialError(f"{name}: neither a file nor a directory nor a link; refused")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    if member.issym():
        *above, _ = check_relative(member.name)
        if above:
            # Refuses a way through a link; what is below a real directory stays inside.
            make_below(directory, "/".join(above))
        (directory / member.name).symlink_to(member.linkname)
        return
    content = tar.extractfile(member)
    if content is None:
        raise TrialError(f"{member.name}: no content; refused")
    with create_below(directory, member.name) as copy:
        shutil.copyfileobj(content, copy, 1 << 20)
        os.fchmod(copy.fileno(), member.mode & _PERMISSIONS)
        copy.flush()
        os.utime(copy.fileno(), (member.mtime, member.mtime))
