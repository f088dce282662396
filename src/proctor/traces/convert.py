"""One kind of trace to another, with a list of everything that did not survive.

    ATIF ─▶ trajectory ─▶ ATIF      what has no field on the other side is carried in metadata or
                                    extra, so that the way back restores it
    conversation ─▶ trajectory      and on to ATIF

Reading is strict: a trace with a problem is refused, unless salvaging is asked for, and then what
had to be left behind is listed as lost.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.traces.atif.convert import from_entries, to_entries
from proctor.traces.atif.model import Agent
from proctor.traces.atif.read import BEYOND_HARBOR, load_atif
from proctor.traces.atif.rules import render_atif
from proctor.traces.conversation import load_conversation
from proctor.traces.entry import HEADER_KEYS, Entry, Header, TraceKind
from proctor.traces.loss import Loss, render_summary
from proctor.traces.trajectory import LineRest, load_trajectory
from proctor.traces.turn import turns_to_entries
from proctor.traces.writer import HEADER, Redactor, render_line

_LISTED = frozenset({"unknown-key", "wrong-type", "duplicate-key"})
"""What a trajectory's reader says of values that it keeps, each of which is listed itself."""
_REPLACED = BEYOND_HARBOR | {"invalid-utf-8"}
"""What an ATIF reader says of values that it puts something else in the place of."""


class Loaded(msgspec.Struct, frozen=True):
    """The entries of a trace of any kind."""

    entries: Sequence[Entry]
    losses: list[Loss]
    """What the entries do not say."""


def load_entries(path: str, kind: TraceKind, *, salvage: bool = False) -> Loaded:
    """A trace of any kind as entries.

    Raises:
        TraceError: it cannot be read; unless salvaging, also the first problem in it.
    """
    match kind:
        case TraceKind.TRAJECTORY:
            # Thorough, because a value that a second key of its name hides is lost as well.
            found = load_trajectory(path, salvage=salvage, thorough=True)
            unread = [each for each in found.diagnostics if each.code not in _LISTED]
            losses = [*_headers(found.headers), *_kept(found.kept), *_unread(unread)]
            return Loaded(_finite(found.entries, unread), losses)
        case TraceKind.CONVERSATION:
            spoken = load_conversation(path, salvage=salvage)
            noticed = spoken.diagnostics
            return Loaded(_finite(list(turns_to_entries(spoken.turns)), noticed), _unread(noticed))
        case TraceKind.ATIF:
            document = load_atif(Path(path), salvage=salvage)
            entries, losses = to_entries(document.atif)
            kept = [
                Loss(at, render_summary(value), "is not of the format")
                for at, value in document.kept.items()
            ]
            replaced = [each for each in document.diagnostics if each.code in _REPLACED]
            return Loaded(entries, [*losses, *kept, *_unread(replaced)])


def _finite(entries: list[Entry], noticed: Iterable[Diagnostic]) -> list[Entry]:
    """The entries with null for each number that JSON does not have; the losses name them."""
    if all(found.code != "not-a-json-number" for found in noticed):
        return entries
    return msgspec.json.decode(msgspec.json.encode(entries), type=list[Entry])


def redact_entries(loaded: Loaded, redactor: Redactor) -> Loaded:
    """The same entries without secrets."""
    clean = [_redact_entry(entry, redactor) for entry in loaded.entries]
    return Loaded(clean, [_redact_loss(loss, redactor) for loss in loaded.losses])


def _redact_entry(entry: Entry, redactor: Redactor) -> Entry:
    # By field, so that a secret that is spelled like a key of the format does not break it.
    fields = msgspec.structs.asdict(entry)
    clean = {key: redactor.redact(value) for key, value in fields.items() if key != "step"}
    for key in ("exit_code", "duration_ms"):
        if clean[key] != fields[key]:
            clean[key] = None
    return msgspec.structs.replace(entry, **clean)


def _redact_loss(loss: Loss, redactor: Redactor) -> Loss:
    def hide(text: str) -> str:
        # A text that was cut may end with half of a secret, which cannot be found any more.
        return "not shown" if "…" in text else redactor.redact_text(text)

    return Loss(hide(loss.path), hide(loss.value_summary), hide(loss.why))


def _headers(headers: Iterable[Header]) -> list[Loss]:
    """What headers say beyond what every header that is written says."""
    written = Header()
    return [
        Loss(f"header.{key}", render_summary(said), "a new header is written")
        for header in headers
        for key in HEADER_KEYS
        if (said := getattr(header, key)) not in (None, getattr(written, key))
    ]


def _kept(kept: Iterable[LineRest]) -> list[Loss]:
    return [
        Loss(f"line {each.line}: {key}", render_summary(value), "is not of the format")
        for each in kept
        for key, value in (*each.beside.items(), *each.shadowed)
    ]


def _unread(diagnostics: Iterable[Diagnostic]) -> list[Loss]:
    return [
        Loss("file" if found.line is None else f"line {found.line}", found.code, found.message)
        for found in diagnostics
        if found.is_problem or found.code == "half-character"
    ]


def render_as_trajectory(loaded: Loaded, *, header: bool = True) -> tuple[bytes, list[Loss]]:
    """trajectory.jsonl; later generations of aec-bench refuse the header."""
    # Only the first generation has a header; later ones refuse it.
    lines = [render_line(HEADER)] if header else []
    lines += [render_line(msgspec.to_builtins(entry)) for entry in loaded.entries]
    return b"".join(lines), loaded.losses


def render_as_atif(loaded: Loaded, agent: Agent | None = None) -> tuple[bytes, list[Loss]]:
    """An ATIF document of version 1.7, which harbor's validator takes.

    Raises:
        TraceError: there is no entry to make a step of.
    """
    atif, losses = from_entries(loaded.entries, agent=agent)
    return render_atif(atif), [*loaded.losses, *losses]
