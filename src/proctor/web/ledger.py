"""The pages of a ledger: its checkpoint and entries, one entry with its proof, a verification.

/ledger                          the checkpoint, and the entries, the newest first
/ledger/entries/{seq}            one entry; …/raw its line, …/proof a proof that it is in the log
/ledger/verification             verify everything; …/progress reports progress
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from proctor.errors import DamageError, LedgerError, NotThereError
from proctor.ledger.claims.proof import InclusionProof, make_inclusion
from proctor.ledger.entry import AnyEntry, Withheld, decode_line
from proctor.ledger.tree import leaf_hash
from proctor.ledger.verification.verify import Verification
from proctor.web.data_source import DataSource
from proctor.web.ledger_log import (
    FILTERS,
    PAGE,
    Link,
    Log,
    find_later_entries,
    find_line,
    find_links,
    opened_log,
)
from proctor.web.pages import render_page
from proctor.web.sanitize import shorten, visible
from proctor.web.verification import Progress, Report, begin_verification, describe_found

# Most characters of an entry on its page.
_LONGEST = 30_000
_SANDBOX = "sandbox; default-src 'none'"


def _show_ledger(request: Request) -> Response:
    before = _read_number(request.query_params.get("before"), "before")
    kind = request.query_params.get("kind")
    if kind is not None and kind not in FILTERS:
        raise HTTPException(400, f"kind is {kind[:40]!r}; expected one of {', '.join(FILTERS)}")
    with opened_log(request.app.state.source) as log:
        listed = log.list_entries(before, kind)
        is_signed, signature = log.check_signature()
        return render_page(
            "ledger.html",
            title="Ledger",
            log=log,
            listed=listed[:PAGE],
            older=listed[PAGE - 1].seq if len(listed) > PAGE else None,
            before=before,
            kind=kind,
            counts=log.count_kinds(),
            filters=FILTERS,
            key=log.find_key(),
            is_signed=is_signed,
            signature=signature,
            shorten=shorten,
            visible=visible,
        )


def _read_number(given: str | None, what: str) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise HTTPException(400, f"{what} is {given[:40]!r}; expected a whole number, 0 or more")
    return int(given)


def _read_seq(request: Request) -> int:
    given = request.path_params["seq"]
    if not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise NotThereError(f"there is no entry {given[:40]!r}; entries have numbers")
    return int(given)


def _show_entry(request: Request) -> Response:
    seq = _read_seq(request)
    with opened_log(request.app.state.source) as log:
        return render_page("ledger_entry.html", **_gather_entry(log, seq))


def _gather_entry(log: Log, seq: int) -> dict[str, Any]:
    """Values of the page of an entry; damage is reported, and the rest is shown."""
    line, leaf, damage = b"", None, log.damage
    entry: AnyEntry | Withheld | None = None
    try:
        line, leaf = find_line(log, seq)
        entry = decode_line(line, f"entry {seq}")
    except DamageError as error:
        damage = str(error)
    is_withheld = isinstance(entry, Withheld)
    proof, unproven = _prove(log, seq)
    links, said = _find_around(log, seq, entry)
    return {
        "title": f"Entry {seq}",
        "seq": seq,
        "kind": "withheld" if is_withheld else getattr(entry, "kind", "damaged"),
        "at": getattr(entry, "at", None),
        "size": log.checkpoint.tree.size if log.checkpoint else None,
        "pretty": shorten(_format(line), _LONGEST),
        "raw": shorten(line.decode("utf-8", "backslashreplace"), _LONGEST),
        "bytes": len(line),
        "is_withheld": is_withheld,
        "leaf": leaf,
        "found_leaf": leaf_hash(line).hex() if line else None,
        "problem": damage,
        "proof": proof,
        "unproven": unproven,
        "links": links,
        "said": said,
        "key": log.find_key(),
        "shorten": shorten,
    }


def _format(line: bytes) -> str:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.format(line, indent=2).decode("utf-8", "backslashreplace")
    return line.decode("utf-8", "backslashreplace")


def _prove(log: Log, seq: int) -> tuple[InclusionProof | None, str | None]:
    """Proof that the entry is in the log, or why there is none."""
    if log.ledger is None or log.checkpoint is None or log.damage is not None:
        return None, "the log is damaged"
    try:
        return make_inclusion(log.ledger, seq, log.checkpoint), None
    except (DamageError, LedgerError) as error:
        return None, str(error)


def _find_around(
    log: Log, seq: int, entry: AnyEntry | Withheld | None
) -> tuple[list[Link], list[Link]]:
    if entry is None or log.ledger is None or log.damage is not None:
        return [], []
    try:
        return list(find_links(entry)), list(find_later_entries(log.ledger, seq, entry))
    except (DamageError, LedgerError):
        return [], []


def _send_line(request: Request) -> Response:
    seq = _read_seq(request)
    with opened_log(request.app.state.source) as log:
        line, _ = find_line(log, seq)
    return _attach(line, f"entry-{seq}.json")


def _send_proof(request: Request) -> Response:
    seq = _read_seq(request)
    with opened_log(request.app.state.source) as log:
        find_line(log, seq)
        if log.ledger is None or log.checkpoint is None or log.damage is not None:
            raise DamageError(f"nothing is proven: {log.damage}")
        proof = make_inclusion(log.ledger, seq, log.checkpoint)
    return _attach(msgspec.json.encode(proof), f"entry-{seq}.proof.json")


def _attach(data: bytes, name: str) -> Response:
    headers = {
        "Content-Security-Policy": _SANDBOX,
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return Response(data, media_type="application/json", headers=headers)


async def _show_verification(request: Request) -> Response:
    report: Report = "the verification was interrupted"
    async for each in _begin(request):
        report = each
    if not isinstance(report, Verification):
        raise HTTPException(503, report if isinstance(report, str) else "it was interrupted")
    return render_page("ledger_verification.html", title="Verification", **describe_found(report))


def _begin(request: Request) -> AsyncIterator[Report]:
    source: DataSource = request.app.state.source
    if source.ledger is None:
        raise NotThereError("this viewer shows jobs, not a ledger")
    return begin_verification(request, source.ledger)


async def _stream_progress(request: Request) -> Response:
    report = _begin(request)

    async def lines() -> AsyncIterator[bytes]:
        async for each in report:
            yield msgspec.json.encode(_describe(each)) + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def _describe(report: Report) -> dict[str, object]:
    match report:
        case Progress():
            return {"what": report.what, "done": report.done, "total": report.total}
        case str():
            return {"problem": report}
        case _:
            return describe_found(report)


routes: list[BaseRoute] = [
    Route("/ledger", _show_ledger, name="ledger"),
    Route("/ledger/entries/{seq}", _show_entry, name="ledger-entry"),
    Route("/ledger/entries/{seq}/raw", _send_line, name="ledger-line"),
    Route("/ledger/entries/{seq}/proof", _send_proof, name="ledger-proof"),
    Route("/ledger/verification", _show_verification, name="verification"),
    Route("/ledger/verification/progress", _stream_progress, name="verification-progress"),
]
