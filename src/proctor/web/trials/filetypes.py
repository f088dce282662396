"""Detect the type of a file from its contents, and whether a browser may display it.

Only pictures, sound and video that cannot contain scripts are displayed. SVG and HTML count as
text, whatever their names.
"""

from dataclasses import dataclass
from typing import Final

HEAD: Final = 512
"""Bytes needed to detect the type."""
_SUFFIXES: Final = frozenset(
    (
        *("png", "jpg", "jpeg", "gif", "webp", "avif", "bmp"),
        *("mp4", "m4v", "mov", "webm", "ogv", "ogg", "oga", "opus", "wav", "mp3", "flac", "m4a"),
    )
)
_PLAIN: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"OggS", "video/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_BRANDS: Final = {b"avif": "image/avif", b"M4A ": "audio/mp4"}


@dataclass(frozen=True, slots=True)
class FileType:
    """Type of a file's contents."""

    media: str | None
    """Its media type, if a page may display it."""
    is_text: bool

    @property
    def element(self) -> str | None:
        """The element that displays it: image, audio or video."""
        return self.media.partition("/")[0] if self.media else None


def may_be_media(name: str) -> bool:
    """Whether a name looks like media, so that its contents are worth checking."""
    return name.rpartition(".")[2].lower() in _SUFFIXES


def find_type(head: bytes) -> FileType:
    """Detect the type of a file from its first bytes."""
    media = _find_media(head)
    return FileType(media, is_text=media is None and _is_text(head))


def _find_media(head: bytes) -> str | None:
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    if head[:2] == b"BM" and head[6:10] != b"\0\0\0\0":
        return None
    return next((kind for magic, kind in _PLAIN if head.startswith(magic)), None)


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # An error in the last bytes may only be a character that was cut.
        return error.start >= len(head) - 3 and len(head) >= HEAD
    return True
