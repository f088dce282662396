"""Writes one layer of an image as overlayfs expects a lower directory.

What the layer removes from those below becomes a whiteout, a device node with the number 0; a
directory whose lower entries are hidden has the attribute `opaque`. What a layer refers to without
bringing it (the parent of a file, the target of a hard link) is copied from the layers below. Their
directories were written by this module: their paths lead nowhere else.
"""

import errno
import os
import posixpath
import shutil
import stat
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from proctor.environments.sandbox.roots.tree import Entry, Kind, Tree, entry_of
from proctor.errors import ImageError

OPAQUE = "overlay.opaque"
_WHITEOUT = os.makedev(0, 0)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
# Attributes that programs see. Others are the kernel's or a security module's: those of overlayfs
# would lead it to files outside the image.
_FOR_ALL = ("user.",)
_FOR_ROOT = ("security.capability", "system.posix_acl_access", "system.posix_acl_default")
_FOREIGN = "user.overlay."
_NAMESPACES = ("user", "security", "system", "trusted")
_KEPT = (*_FOR_ALL, *_FOR_ROOT)


class LayerTree(Tree):
    """A layer that is being written, on top of others."""

    def __init__(
        self, root: Path, lowers: Sequence[Path], *, namespace: str, n_ids: int | None
    ) -> None:
        """Begin in an empty directory; `lowers` are the layers below it, topmost first.

        `namespace` is that of overlayfs's attributes, trusted or user; `n_ids` the number of users
        whose files can be made, None for all.
        """
        self.left_out: Counter[str] = Counter()
        self.n_squashed = 0
        self._lowers = [str(lower) for lower in lowers]
        self._opaque_name = f"{namespace}.{OPAQUE}"
        self._is_trusted = namespace == "trusted"
        self._n_ids = n_ids
        # Paths of lower layers that this one removes, and directories that hide those below them.
        self._whiteouts: set[str] = set()
        self._opaque: set[str] = set()
        # Layers that are merged in a directory of those below, topmost first.
        self._merged: dict[str, Sequence[str]] = {"": self._lowers}
        super().__init__(root)
        if lowers:
            self._entries[""] = _describe(self._lowers[0], "", os.lstat(self._lowers[0]))

    @property
    def hides_all(self) -> bool:
        """Whether nothing of the layers below is left."""
        return "" in self._opaque

    def add_directory(self, path: str, entry: Entry) -> None:
        """Add a directory, or give an existing one these permissions."""
        self._count_owner(entry)
        if path in self._whiteouts:
            self._whiteouts.remove(path)
            self._opaque.add(path)
        super().add_directory(path, entry)

    def add_file(self, path: str, entry: Entry, source: BinaryIO) -> None:
        """Add a file with the rest of the bytes of `source`."""
        self._count_owner(entry)
        self._whiteouts.discard(path)
        super().add_file(path, entry, source)

    def add_link(self, path: str, entry: Entry) -> None:
        """Add a symlink; its target need not exist."""
        self._count_owner(entry)
        self._whiteouts.discard(path)
        super().add_link(path, entry)

    def add_name(self, path: str, of: str) -> None:
        """Add a hard link to a file, which is copied if it is in a layer below."""
        if of not in self._entries and (found := self._find_below(of)) is not None:
            self._copy_up(of, *found)
        self._whiteouts.discard(path)
        super().add_name(path, of)

    def remove(self, path: str, keep: AbstractSet[str]) -> None:
        """Hide an entry of the layers below; what is in `keep`, which this layer brought, stays."""
        if path in keep:
            self.remove_below(path, keep)
            return
        if path in self._entries:
            # Only copied from below, for the sake of another entry.
            super().remove(path, keep)
        if self._find_below(path) is not None:
            self._make_parents(path)
            self._whiteouts.add(path)

    def remove_below(self, path: str, keep: AbstractSet[str]) -> None:
        """Hide everything of the layers below in a directory."""
        if self.kind_of(path) is not Kind.DIRECTORY:
            return
        if path in self._entries:
            super().remove_below(path, keep)
        else:
            self._make_parents(f"{path}/…")
        self._opaque.add(path)

    def finish(self) -> str:
        """Write whiteouts and the permissions of directories; a layer has no digest of its own."""
        for path in sorted(self._whiteouts):
            # A directory above it may have been hidden as a whole since.
            if not self._is_hidden_above(path):
                os.mknod(self._root / path, stat.S_IFCHR, _WHITEOUT)
        for path in sorted(self._opaque):
            # A later entry may have replaced it or a directory above it, with a symlink too.
            if path not in self._entries or self._entries[path].kind is not Kind.DIRECTORY:
                continue
            os.setxattr(self._root / path, self._opaque_name, b"y", follow_symlinks=False)
        self._dress_directories()
        return ""

    # What is below

    def _find(self, path: str) -> Entry | None:
        own = self._entries.get(path)
        if own is not None or not self._lowers:
            return own
        found = self._find_below(path)
        return None if found is None else found[1]

    def _find_below(self, path: str) -> tuple[str, Entry] | None:
        """Return the layer that has a path, and its entry; None if it is hidden or nowhere."""
        if not self._lowers or (path in self._whiteouts or self._is_hidden_above(path)):
            return None
        if not path:
            return self._lowers[0], self._entries[""]
        found = _look(self._find_merged(posixpath.dirname(path)), path)[0]
        return None if found is None else (found[0], _describe(found[0], path, found[1]))

    def _find_merged(self, path: str) -> Sequence[str]:
        """Return the layers that are merged in a directory; none if it is not one."""
        if path not in self._merged:
            above = self._find_merged(posixpath.dirname(path))
            self._merged[path] = _look(above, path)[1]
        return self._merged[path]

    def _is_hidden_above(self, path: str) -> bool:
        """Whether a directory above a path, or what is there instead of it, hides it."""
        while path:
            path = posixpath.dirname(path)
            own = self._entries.get(path)
            is_gone = own is not None and own.kind is not Kind.DIRECTORY
            if is_gone or path in self._whiteouts or path in self._opaque:
                return True
        return False

    def _implied(self, path: str) -> Entry:
        if path in self._whiteouts:
            self._whiteouts.remove(path)
            self._opaque.add(path)
        found = None if path in self._opaque else self._find_below(path)
        if found is None:
            return super()._implied(path)
        if found[1].kind is not Kind.DIRECTORY:
            kind = found[1].kind
            raise ImageError(f"{path}: is a {kind} of a lower layer, and has entries below it")
        return found[1]

    def _copy_up(self, path: str, layer: str, entry: Entry) -> None:
        if entry.kind is Kind.LINK:
            super().add_link(path, entry)
        elif entry.kind is Kind.FILE:
            with os.fdopen(os.open(f"{layer}/{path}", _FILE), "rb") as source:
                super().add_file(path, entry, source)

    # Metadata

    def _copy(self, source: BinaryIO, target: BinaryIO) -> str:
        # Without a digest for each file: the digest of the layer covers them all.
        shutil.copyfileobj(source, target, _CHUNK)
        return ""

    def _owned(self, entry: Entry) -> Entry:
        if self._n_ids is None:
            return entry
        return replace(
            entry,
            uid=entry.uid if entry.uid < self._n_ids else 0,
            gid=entry.gid if entry.gid < self._n_ids else 0,
        )

    def _count_owner(self, entry: Entry) -> None:
        if self._owned(entry) != entry:
            self.n_squashed += 1

    def _dress_file(self, fd: int, entry: Entry) -> None:
        super()._dress_file(fd, entry)
        # After the owner, whose change clears the capabilities of a program.
        for name, value in entry.xattrs:
            self._set_attribute(fd, name, value)

    def _set_attribute(self, fd: int, name: str, value: bytes) -> None:
        allowed = _KEPT if self._is_trusted else _FOR_ALL
        if not name.startswith(allowed) or name.startswith(_FOREIGN):
            self.left_out[f"attributes {_kind_of(name)}"] += 1
            return
        try:
            os.setxattr(fd, name, value)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.E2BIG, errno.ENOSPC):
                raise
            self.left_out[f"attributes {_kind_of(name)}, which the disk cannot store,"] += 1


def _kind_of(attribute: str) -> str:
    """Return the namespace of an attribute: names are many, and may be long."""
    namespace = attribute.partition(".")[0]
    return f"{namespace}.*" if namespace in _NAMESPACES else "of unknown kinds"


def _look(
    live: Sequence[str], path: str
) -> tuple[tuple[str, os.stat_result] | None, Sequence[str]]:
    """Find a path as overlayfs does, in layers that are merged in the directory above it.

    Returns the topmost layer that has it, and the layers that are merged in it.
    """
    found: tuple[str, os.stat_result] | None = None
    merged: list[str] = []
    for layer in live:
        try:
            status = os.lstat(f"{layer}/{path}")
        except FileNotFoundError:
            continue
        if stat.S_ISCHR(status.st_mode):
            break
        if found is None:
            found = layer, status
        if not stat.S_ISDIR(status.st_mode):
            break
        merged.append(layer)
        if _is_opaque(f"{layer}/{path}"):
            break
    return found, merged


def _is_opaque(directory: str) -> bool:
    return any(name.endswith(OPAQUE) for name in os.listxattr(directory, follow_symlinks=False))


def _describe(layer: str, path: str, status: os.stat_result) -> Entry:
    place = f"{layer}/{path}" if path else layer
    if stat.S_ISLNK(status.st_mode):
        return entry_of(status, Kind.LINK, os.readlink(place))  # noqa: PTH115 - the text as it is
    kind = Kind.DIRECTORY if stat.S_ISDIR(status.st_mode) else Kind.FILE
    xattrs = tuple(
        (name, os.getxattr(place, name, follow_symlinks=False))
        for name in os.listxattr(place, follow_symlinks=False)
        if name.startswith(_KEPT) and not name.startswith(_FOREIGN)
    )
    return replace(entry_of(status, kind), xattrs=xattrs)
