"""Verify the ledger in the background: one verification at a time, stopped if the client leaves.

It runs in a separate thread and reports progress; when the client disconnects, it stops at the next
piece.
"""

import queue
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from proctor.errors import ProctorError
from proctor.ledger.verification.verify import Verification, verify_ledger
from proctor.sentence import count_of
from proctor.web.sanitize import shorten, visible

ONE = threading.Lock()
"""Held by a running verification: each reads the whole ledger."""
_LOOK_EVERY_SEC = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a verification."""

    what: str
    done: int
    total: int


# Most damages listed individually.
_MOST_SHOWN = 200

type Report = Progress | Verification | str
"""Progress, and at the end the result, or why there is none."""


class _EndedError(Exception):
    """The client has disconnected."""


@dataclass(slots=True)
class Running:
    """A running verification. The caller acquires the lock, and the thread releases it."""

    directory: Path
    latest: Progress | None = None
    result: queue.Queue[Verification | str] = field(default_factory=queue.Queue)
    is_left: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Verify, and store the result."""
        try:
            self.result.put(verify_ledger(self.directory, progress=self._tell))
        except _EndedError:
            pass
        except ProctorError as error:
            self.result.put(str(error))
        except Exception:  # the thread's boundary: the page must not wait for ever
            self.result.put("a defect of proctor ended the verification")
            raise
        finally:
            ONE.release()

    def _tell(self, what: str, done: int, total: int) -> None:
        if self.is_left.is_set():
            raise _EndedError
        self.latest = Progress(what, done, total)

    def wait(self) -> Report | None:
        """The next report, or None after a short wait."""
        try:
            return self.result.get(timeout=_LOOK_EVERY_SEC)
        except queue.Empty:
            return self.latest


def begin_verification(request: Request, directory: Path) -> AsyncIterator[Report]:
    """Verify a ledger; yield progress and finally the result.

    Raises:
        HTTPException: 503 while another one runs, 403 for a request from another site.
    """
    if request.headers.get("sec-fetch-site") not in (None, "none", "same-origin"):
        raise HTTPException(403, "requested by a page of another site; refused")
    if not ONE.acquire(blocking=False):
        raise HTTPException(
            503, "a verification is already running; try again when it has ended",
            {"Retry-After": "5"},
        )  # fmt: skip
    running = Running(directory)
    threading.Thread(target=running.run, name="verification", daemon=True).start()
    return _watch(request, running)


async def _watch(request: Request, running: Running) -> AsyncIterator[Report]:
    try:
        while not await request.is_disconnected():
            report = await run_in_threadpool(running.wait)
            if report is not None:
                yield report
            if isinstance(report, Verification | str):
                return
    finally:
        running.is_left.set()


def describe_found(found: Verification) -> dict[str, Any]:
    """The result as text, for pages and scripts."""
    more = len(found.damage) - _MOST_SHOWN
    notes = [visible(note) for note in found.notes]
    if more > 0:
        notes.append(f"{more:,} more are not listed; `proctor ledger verify` lists all")
    return {
        "is_sound": found.is_sound,
        "verdict": "Sound"
        if found.is_sound
        else f"Damaged in {count_of(len(found.damage), 'place')}",
        "facts": [[what, shorten(text, 300)] for what, text in _list_facts(found)],
        "damages": [
            {
                "kind": str(each.kind),
                "where": shorten(each.where, 200),
                "message": shorten(each.message, 600),
                "seq": each.seq,
            }
            for each in found.damage[:_MOST_SHOWN]
        ],
        "notes": notes,
    }


def _list_facts(found: Verification) -> list[tuple[str, str]]:
    withheld = f"{count_of(found.withheld, 'entry', 'entries')}, and "
    return [
        ("origin", found.origin or "not known"),
        ("entries", f"{found.size:,}, all hashed and decoded"),
        ("root", found.root or "not known"),
        ("key", found.key or "not known"),
        ("trusted", "self-signed: this shows that the log is consistent, not who signed it"),
        ("evidence", f"{count_of(found.artifacts, 'file')} read completely"),
        ("withheld", withheld + count_of(found.withheld_artifacts, "file of other entries",
                                         "files of other entries")),
        ("since", "not compared with an older checkpoint: only `proctor ledger verify --since` "
            "detects an owner who signed everything again"),
    ]  # fmt: skip
