"""Selects the files of a task's environment directory that COPY names.

By Docker's rules: patterns, .dockerignore, the contents of a directory rather than the directory.
Symlinks are copied as symlinks; one that COPY names directly is followed if it stays inside.
"""

import functools
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.digest import sha256_file, sha256_hex
from proctor.environments.sandbox.roots.image_tar import is_archive
from proctor.environments.sandbox.roots.instructions import Copy
from proctor.environments.sandbox.roots.tree import Kind
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.sentence import reason_of

# .dockerignore, by Docker's rules
#
# The last pattern that matches a path or one of its parents decides; `!` includes a path again.


@dataclass(frozen=True, slots=True)
class Ignored:
    """Rules of a .dockerignore."""

    rules: tuple[tuple[re.Pattern[str], bool], ...] = ()
    """(pattern, whether it excludes), in order."""

    def __contains__(self, path: str) -> bool:
        parts = path.split("/")
        names = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        is_out = False
        for pattern, leaves_out in self.rules:
            if is_out != leaves_out and any(pattern.fullmatch(name) for name in names):
                is_out = leaves_out
        return is_out

    @property
    def has_exceptions(self) -> bool:
        """Whether files below an excluded directory may be included."""
        return any(not leaves_out for _, leaves_out in self.rules)


def parse_dockerignore(text: str, where: str) -> Ignored:
    """Parse a .dockerignore; `where` names it in messages.

    Raises:
        ImageError: a pattern is invalid; the message names file and line.
    """
    rules = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        leaves_out = not rule.startswith("!")
        rule = rule.removeprefix("!").strip()
        if not rule:
            raise ImageError(f"{where}:{number}: `!` alone; expected a pattern after it")
        cleaned = posixpath.normpath(rule).lstrip("/")
        try:
            rules.append((compile_pattern(cleaned), leaves_out))
        except re.error as error:
            raise ImageError(f"{where}:{number}: {rule!r} is not a pattern: {error}") from error
    return Ignored(tuple(rules))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern: `*` and `?` match within a name, `**` across names, `[…]` is a set."""
    result, position = "", 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**"):
            skipped = 3 if rest.startswith("**/") else 2
            result += ".*" if position + 2 == len(pattern) else "(?:.*/)?"
        else:
            piece, skipped = _translate(rest)
            result += piece
        position += skipped
    return re.compile(result, re.DOTALL)


def _translate(rest: str) -> tuple[str, int]:
    """Return the expression for the first element of a pattern, and the element's length."""
    char = rest[0]
    if char == "*":
        return "[^/]*", 1
    if char == "?":
        return "[^/]", 1
    if char == "\\" and len(rest) > 1:
        return re.escape(rest[1]), 2
    if char == "[":
        end = rest.find("]", 2)
        if end < 0:
            raise re.error("[ without ]")
        return f"(?!/){rest[: end + 1]}", end + 1
    return re.escape(char), 1


_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Item:
    """One file, directory or symlink to copy."""

    path: str
    """Relative to the target."""
    kind: Kind
    mode: int
    source: Path | None = None
    """Path on the host."""
    content: bytes = b""
    """Content of a here-document, instead of a source."""

    @property
    def line(self) -> str:
        """Everything that determines the copy, for the key of a layer."""
        return "\0".join((self.path, self.kind, f"{self.mode:o}", self._digest))

    @property
    def _digest(self) -> str:
        if self.source is None:
            return sha256_hex(self.content)
        if self.kind is Kind.LINK:
            return os.readlink(self.source)  # noqa: PTH115 - the text as it is
        return "" if self.kind is Kind.DIRECTORY else _digest_of(self.source)


def _digest_of(path: Path) -> str:
    found = path.stat()
    return _digest_once(path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@functools.lru_cache(maxsize=4096)
def _digest_once(path: Path, *_version: int) -> str:
    """Cached, because many trials of one task read the same files."""
    return sha256_file(path)


@dataclass(frozen=True, slots=True)
class Selection:
    """The files of one COPY or ADD."""

    items: tuple[Item, ...]
    is_file: bool
    """Whether it is a single file, which may become the target itself."""
    archives: tuple[Path, ...] = ()
    """Archives on the host that ADD unpacks into the target."""

    @property
    def digest(self) -> str:
        """Digest of everything that determines the copy, for the key of a layer."""
        lines = [item.line for item in self.items]
        lines += [f"archive\0{_digest_of(path)}" for path in self.archives]
        # Names of files may not be valid text, so hash their bytes.
        return sha256_hex(os.fsencode("\0\0".join(lines)))


def split_pattern(pattern: str) -> tuple[str, list[str]]:
    """Return the directory above the wildcards of a pattern, and an expression for each level.

    Raises:
        ImageError: it is not a pattern.
    """
    names = posixpath.normpath(posixpath.join("/", pattern)).strip("/").split("/")
    n_plain = next((n for n, name in enumerate(names) if _WILD.search(name)), len(names))
    try:
        levels = [compile_pattern(name.replace("**", "*")).pattern for name in names[n_plain:]]
    except re.error as error:
        raise ImageError(f"{pattern!r} is not a pattern: {error}") from error
    return f"/{'/'.join(names[:n_plain])}", levels


class Context:
    """An environment directory with its .dockerignore."""

    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._ignored = _load_ignored(directory)

    def select(self, step: Copy) -> Selection:
        """Select the files of a COPY.

        Raises:
            ImageError: a source is missing, or a device.
        """
        archives: list[Path] = []
        items: list[Item] = [
            Item(name, Kind.FILE, 0o644, content=content.encode()) for name, content in step.inline
        ]
        is_file = bool(items)
        for pattern in step.sources:
            found = self._find(pattern)
            if not found and not _WILD.search(pattern):
                raise ImageError(f"{pattern}: not in {self._root}, or excluded by .dockerignore")
            for path in found:
                if step.is_add and (archive := self._find_archive(path)) is not None:
                    archives.append(archive)
                    continue
                below, is_one = self._take(path)
                items += below
                is_file = is_file or is_one
        if not items and not step.sources:
            raise ImageError("nothing to copy")
        if step.chmod is not None:
            items = [replace(item, mode=step.chmod) for item in items]
        return Selection(tuple(items), is_file and len(items) == 1, tuple(archives))

    def _find(self, pattern: str) -> list[str]:
        """Return the relative paths that a pattern matches; it cannot lead out of the root."""
        clean = posixpath.normpath(posixpath.join("/", pattern)).lstrip("/")
        if not clean or not _WILD.search(clean):
            is_there = os.path.lexists(self._root / clean)
            return [clean] if is_there and not (clean and self._is_left_out(clean)) else []
        try:
            # In COPY, unlike in .dockerignore, `**` has no special meaning.
            regex = compile_pattern(clean.replace("**", "*"))
        except re.error as error:
            raise ImageError(f"{pattern!r} is not a pattern: {error}") from error
        depth = clean.count("/")
        return sorted(
            path for path in self._walk("") if path.count("/") == depth and regex.fullmatch(path)
        )

    def _is_left_out(self, path: str) -> bool:
        if path not in self._ignored:
            return False
        is_open = self._ignored.has_exceptions and (self._root / path).is_dir()
        return not (is_open and any(found not in self._ignored for found in self._walk(path)))

    def _walk(self, below: str) -> Iterator[str]:
        """Yield every included path below a directory, parents first."""
        try:
            names = sorted(path.name for path in (self._root / below).iterdir())
        except OSError as error:
            raise ImageError(f"{self._root / below}: cannot be read: {reason_of(error)}") from error
        for name in names:
            path = f"{below}/{name}" if below else name
            is_directory = stat.S_ISDIR((self._root / path).lstat().st_mode)
            inside = list(self._walk(path)) if is_directory and self._may_hold(path) else []
            if inside or path not in self._ignored:
                yield path
            yield from inside

    def _may_hold(self, path: str) -> bool:
        return self._ignored.has_exceptions or path not in self._ignored

    def _find_archive(self, path: str) -> Path | None:
        """Return the path of an archive on the host; None if it is not one."""
        place = self._resolve(path)
        return place if place.is_file() and is_archive(place) else None

    def _take(self, path: str) -> tuple[list[Item], bool]:
        """Return the items of one source, and whether it is a single file."""
        place = self._resolve(path)
        mode = place.stat().st_mode
        if stat.S_ISDIR(mode):
            real = place.relative_to(self._root.resolve()).as_posix()
            top = "" if real == "." else real
            return [self._item(one, one[len(top) :].lstrip("/")) for one in self._walk(top)], False
        name = posixpath.basename(path)
        return [replace(_make_item(place, name), path=name)], True

    def _resolve(self, path: str) -> Path:
        place = (self._root / path).resolve()
        if not place.is_relative_to(self._root.resolve()):
            raise ImageError(
                f"{path}: a symlink that leads out of {self._root}; expected a file in it"
            )
        if not place.exists():
            raise ImageError(f"{path}: a dangling symlink")
        return place

    def _item(self, path: str, below: str) -> Item:
        return _make_item(self._root / path, below)


def _make_item(place: Path, path: str) -> Item:
    mode = place.lstat().st_mode
    for test, kind in (
        (stat.S_ISDIR, Kind.DIRECTORY),
        (stat.S_ISREG, Kind.FILE),
        (stat.S_ISLNK, Kind.LINK),
    ):
        if test(mode):
            return Item(path, kind, stat.S_IMODE(mode), source=place)
    raise ImageError(f"{place}: neither a file, a directory nor a link; it cannot be copied")


def _load_ignored(directory: Path) -> Ignored:
    for name in ("Dockerfile.dockerignore", ".dockerignore"):
        path = directory / name
        if path.is_file():
            try:
                text = read_small(str(path)).decode("utf-8", errors="replace")
            except OSError as error:
                raise ImageError(f"{path}: cannot be read: {reason_of(error)}") from error
            return parse_dockerignore(text, str(path))
    return Ignored()


def stage(items: tuple[Item, ...], directory: Path) -> None:
    """Write the items to an empty directory, with their modes."""
    for item in items:
        to = directory / item.path
        to.parent.mkdir(parents=True, exist_ok=True)
        if item.kind is Kind.DIRECTORY:
            to.mkdir(exist_ok=True)
        elif item.kind is Kind.LINK and item.source is not None:
            to.symlink_to(os.readlink(item.source))  # noqa: PTH115 - the text as it is
        elif item.source is None:
            to.write_bytes(item.content)
        else:
            shutil.copyfile(item.source, to)
            found = item.source.stat()
            os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns))
    # Deepest first: a directory may become unwritable only after its contents are done.
    for item in sorted(items, key=lambda one: one.path, reverse=True):
        if item.kind is not Kind.LINK:
            (directory / item.path).chmod(item.mode)
