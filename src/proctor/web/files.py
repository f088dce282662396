"""One file of a trial, as text in a page or as a download.

    /trials/{experiment}/{trial}/files/{path}            text, a part at a time
    /trials/{experiment}/{trial}/files/{path}?raw=1      the bytes

Only files that the trial lists are served. Browsers display only pictures, sound and video that
cannot contain scripts; SVG and HTML are shown as text, and downloaded instead of opened. Files of
any size are sent in constant memory; sealed files are verified before their first byte is sent.
"""

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from proctor.errors import MissingArtifactError, NotThereError
from proctor.files import open_plain
from proctor.web.data_source import DataSource
from proctor.web.pages import render_page
from proctor.web.problems import say_problem
from proctor.web.sanitize import shorten, visible
from proctor.web.trials.filetypes import HEAD, FileType, find_type
from proctor.web.trials.trial_view import TrialFile, TrialView, opened_trial

# Bytes of a file on one page.
_PART = 1 << 17
_CHUNK = 1 << 16
# Bytes shown of a binary file.
_HEX = 512
_SANDBOX = "sandbox; default-src 'none'"


def _show_file(request: Request) -> Response:
    source: DataSource = request.app.state.source
    experiment, trial = request.path_params["experiment"], request.path_params["trial"]
    with opened_trial(source, experiment, trial, files_only=True) as known:
        file = known.find_file(request.path_params["path"])
        if file is None:
            raise NotThereError("the trial lists no file of that name")
        if file.state == "withheld":
            said = file.withheld_by
            why = f": {said.reason} ({said.author}, entry {said.seq} of the ledger)" if said else ""
            return say_problem(
                410, f"{file.path} was withheld{why}. Its digest stays: {file.sha256}"
            )
        if file.state == "lost":
            raise MissingArtifactError(f"evidence {file.path!r} is lost: {file.sha256}")
        stack = contextlib.ExitStack()
        try:
            opened = _open(known, file, stack)
            if "raw" in request.query_params:
                return _send(file, opened, stack)
            with stack:
                return _show_text(known, file, opened, request.query_params.get("from", ""))
        # On success the response owns the stack and closes it after sending.
        except BaseException:
            stack.close()
            raise


def _open(known: TrialView, file: TrialFile, stack: contextlib.ExitStack) -> BinaryIO:
    """Open the file; for a sealed one, a verified copy."""
    path = stack.enter_context(known.traced.open_file(file.path))
    try:
        return stack.enter_context(open_plain(Path(path)))
    except OSError as error:
        raise MissingArtifactError(f"{file.path}: cannot be read: {error.strerror}") from error


def _send(file: TrialFile, opened: BinaryIO, stack: contextlib.ExitStack) -> Response:
    kind = find_type(opened.read(HEAD))
    opened.seek(0)
    headers = {
        "Content-Security-Policy": _SANDBOX,
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f"{'inline' if kind.media else 'attachment'}; {_name_of(file)}",
    }
    if file.sha256 is not None:
        # Only for sealed files: a job's file may still grow, and the length would be wrong.
        headers["Content-Length"] = str(os.fstat(opened.fileno()).st_size)
    return _FileResponse(opened, stack, media_type=_media_type(kind), headers=headers)


class _FileResponse(StreamingResponse):
    """Sends a file and closes it, even if the client disconnects."""

    def __init__(
        self,
        opened: BinaryIO,
        stack: contextlib.ExitStack,
        *,
        media_type: str,
        headers: dict[str, str],
    ) -> None:
        pieces = iter(partial(opened.read, _CHUNK), b"")
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        with self._stack:
            await super().__call__(scope, receive, send)


def _media_type(kind: FileType) -> str:
    if kind.media:
        return kind.media
    return "text/plain; charset=utf-8" if kind.is_text else "application/octet-stream"


def _name_of(file: TrialFile) -> str:
    # RFC 5987: file names are untrusted and may contain quotes and line breaks.
    return f"filename*=UTF-8''{quote(file.path.rpartition('/')[2], safe='')}"


def _show_text(known: TrialView, file: TrialFile, opened: BinaryIO, wanted: str) -> Response:
    kind, size = find_type(opened.read(HEAD)), os.fstat(opened.fileno()).st_size
    # At most 18 digits, so that the offset fits into 64 bits.
    begin = int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) < 19 else 0
    if begin and begin >= size:
        raise NotThereError(f"the file has {size:,} bytes; nothing follows byte {begin:,}")
    opened.seek(begin)
    data = _whole_lines(opened.read(_PART), is_last=begin + _PART >= size)
    end = begin + len(data)
    return render_page(
        "trial_file.html",
        title=shorten(f"{file.path} · {known.trial}", 200),
        known=known,
        file=file,
        size=size,
        kind=kind,
        text=visible(data.decode("utf-8", "replace")) if kind.is_text else None,
        hexed=None if kind.is_text else dump_hex(data[:_HEX]),
        begin=begin,
        end=end,
        before=max(begin - _PART, 0) if begin else None,
        address=known.file_path(file.path),
        shorten=shorten,
    )


def _whole_lines(data: bytes, *, is_last: bool) -> bytes:
    """Cut a part at its last line end, so that no line is split between pages."""
    end = data.rfind(b"\n")
    return data if is_last or end < 0 else data[: end + 1]


def dump_hex(data: bytes) -> str:
    """Hex dump: offset, bytes and characters."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in row)
        lines.append(f"{at:06x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)


routes: list[BaseRoute] = [
    Route("/trials/{experiment}/{trial}/files/{path:path}", _show_file, name="trial-file")
]
