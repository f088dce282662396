"""Writes the source of an import to the disk, an untrusted root file system.

It is a tar archive (`docker export`), a directory, or an image with its layers (`docker save`, an
OCI image layout).
"""

import os
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from proctor.environments.sandbox.roots.image_tar import (
    EXPECTED,
    Budget,
    Putter,
    damage_named,
    inside,
    open_tar,
    opened,
)
from proctor.environments.sandbox.roots.saved_files import SavedFiles, put_layers, saved_files
from proctor.environments.sandbox.roots.saved_image import SavedImage, choose_image
from proctor.environments.sandbox.roots.tree import Kind, Tree, entry_of
from proctor.environments.sandbox.tar_ops import members_of
from proctor.errors import ImageError
from proctor.sentence import count_of, reason_of


@dataclass(frozen=True, slots=True)
class Put:
    """A root file system that was written."""

    tree: Tree
    form: str
    """tar, directory, docker-save or oci-layout."""
    notes: tuple[str, ...]
    """Messages about entries that were left out."""
    saved: SavedImage | None = None
    """Configuration of the image; None for a bare root file system."""


def put_source(source: Path, root: Path, name: str) -> Put:
    """Write a source to `root`, which is empty; `name` selects one of several images in it."""
    tree, budget = Tree(root), Budget(root)
    with saved_files(source, root.parent, budget) as files:
        if files is not None:
            return _put_saved(source, files, tree, budget, name)
    if source.is_dir():
        left_out: Counter[str] = Counter()
        _put_directory(source, tree, left_out)
    else:
        left_out = _put_archive(source, tree, budget)
    _check_root(source, tree)
    form = "directory" if source.is_dir() else "tar"
    return Put(tree, form, _notes_on(left_out))


def _notes_on(left_out: dict[str, int]) -> tuple[str, ...]:
    return tuple(
        f"{what} left out: {count_of(n, 'entry', 'entries')}" for what, n in left_out.items()
    )


def _check_root(source: Path, tree: Tree) -> None:
    if not len(tree):
        raise ImageError(f"{source}: is empty; expected a root file system")
    if "bin" in tree or "usr" in tree:
        return
    top = tree.top
    shown = ", ".join(top[:5]) + (", …" if len(top) > 5 else "")
    raise ImageError(
        f"{source}: not a root file system: neither bin nor usr at its top, but {shown}; "
        "if it is in a subdirectory, import that (or `tar -C DIRECTORY -c .` of it)"
    )


# Images with their layers


def _put_saved(source: Path, files: SavedFiles, tree: Tree, budget: Budget, name: str) -> Put:
    with damage_named(str(source)):
        image = choose_image(files, name)
        left_out = put_layers(files, image.layers, tree, budget)
    _check_root(source, tree)
    return Put(tree, image.form, (*_notes_on(left_out), *image.notes), image)


# Archives


def _put_archive(source: Path, tree: Tree, budget: Budget) -> Counter[str]:
    putter = Putter(tree, budget)
    with opened(source, budget) as stream, damage_named(str(source)):
        with open_tar(str(source), stream) as archive:
            for member in members_of(archive, stream):
                putter.count(member)
                of = inside(member.linkname) if member.islnk() else ""
                putter.put(archive, member, inside(member.name), of)
        stream.drain()
        if not stream.is_ended:
            raise ImageError(f"{source}: has no end mark: it was cut short; {EXPECTED}")
    return putter.left_out


# Directories


def _put_directory(source: Path, tree: Tree, left_out: Counter[str]) -> None:
    top = source.stat()
    tree.add_directory("", entry_of(top, Kind.DIRECTORY))
    first_names: dict[tuple[int, int], str] = {}
    waiting = [("", source)]
    while waiting:
        below, directory = waiting.pop()
        for entry in sorted(os.scandir(directory), key=lambda found: found.name):
            path = f"{below}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                _put_found(entry, path, tree, first_names, left_out)
                continue
            tree.add_directory(path, entry_of(status, Kind.DIRECTORY))
            if status.st_dev == top.st_dev:
                waiting.append((f"{path}/", Path(entry.path)))
            else:
                left_out[f"what is mounted on {path}"] += 1


def _put_found(
    entry: os.DirEntry[str],
    path: str,
    tree: Tree,
    first_names: dict[tuple[int, int], str],
    left_out: Counter[str],
) -> None:
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        to = os.readlink(entry.path)  # noqa: PTH115 - the text as it is
        tree.add_link(path, entry_of(status, Kind.LINK, to))
    elif not stat.S_ISREG(status.st_mode):
        left_out["devices and pipes"] += 1
    elif first := first_names.get((status.st_dev, status.st_ino)):
        tree.add_name(path, first)
    else:
        if status.st_nlink > 1:
            first_names[status.st_dev, status.st_ino] = path
        with Path(entry.path).open("rb") as file:
            tree.add_file(path, entry_of(status, Kind.FILE), file)


def reason_not_put(source: Path, store: Path, error: OSError) -> str:
    """Return the message for an import that failed with `error`."""
    where = error.filename if isinstance(error.filename, str) else str(source)
    if where.startswith(str(store)) or error.filename is None:
        return f"{store}: the image cannot be written there: {reason_of(error)}"
    return f"{where}: cannot be read: {reason_of(error)}"
