"""Convert between kinds of traces, and list everything that was lost.

    ATIF ─▶ trajectory ─▶ ATIF      what has no field on the other side is carried in metadata or
                                    extra, so that converting back restores it
    conversation ─▶ trajectory      and on to ATIF

Reading is strict: a trace with a problem is refused, unless `salvage` is set; then what had to be
left out is listed as lost.
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
from proctor.traces.trajectory import load_trajectory
from proctor.traces.turn import turns_to_entries
from proctor.traces.writer import HEADER, Redactor, render_line

# Diagnostics of a trajectory about values that are kept; each such value is listed by itself.
_LISTED = frozenset({"unknown-key", "wrong-type", "duplicate-key"})
# Diagnostics of an ATIF reader about values that it replaces.
_REPLACED = BEYOND_HARBOR | {"invalid-utf-8"}


class Loaded(msgspec.Struct, frozen=True):
    """The entries of a trace of any kind."""

    entries: Sequence[Entry]
    losses: list[Loss]
    """What the entries do not contain."""


def load_entries(path: str, kind: TraceKind, *, salvage: bool = False) -> Loaded:
    """Load a trace of any kind as entries."""
    match kind:
        case TraceKind.TRAJECTORY | TraceKind.OUTPUT:
            # Thorough, because a value hidden by a duplicate key is lost too.
            found = load_trajectory(path, salvage=salvage, thorough=True)
            unread = [each for each in found.diagnostics if each.code not in _LISTED]
            written = Header()
            losses = [
                *[
                    Loss(f"header.{key}", render_summary(said), "a new header is written")
                    for header in found.headers
                    for key in HEADER_KEYS
                    if (said := getattr(header, key)) not in (None, getattr(written, key))
                ],
                *[
                    Loss(f"line {each.line}: {key}", render_summary(value), "is not of the format")
                    for each in found.kept
                    for key, value in (*each.beside.items(), *each.shadowed)
                ],
                *_unread(unread),
            ]
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
    """Replace numbers that JSON does not have with null; they are listed as losses."""
    if all(found.code != "not-a-json-number" for found in noticed):
        return entries
    return msgspec.json.decode(msgspec.json.encode(entries), type=list[Entry])


def redact_entries(loaded: Loaded, redactor: Redactor) -> Loaded:
    """Redact secrets in the entries."""
    clean = [_redact_entry(entry, redactor) for entry in loaded.entries]
    return Loaded(clean, [_redact_loss(loss, redactor) for loss in loaded.losses])


def _redact_entry(entry: Entry, redactor: Redactor) -> Entry:
    # Per field, so that a secret that equals a key of the format does not break it.
    fields = msgspec.structs.asdict(entry)
    clean = {key: redactor.redact(value) for key, value in fields.items() if key != "step"}
    for key in ("exit_code", "duration_ms"):
        if clean[key] != fields[key]:
            clean[key] = None
    return msgspec.structs.replace(entry, **clean)


def _redact_loss(loss: Loss, redactor: Redactor) -> Loss:
    def hide(text: str) -> str:
        # A shortened text may end with half of a secret, which could not be recognised.
        return "not shown" if "…" in text else redactor.redact_text(text)

    return Loss(hide(loss.path), hide(loss.value_summary), hide(loss.why))


def _unread(diagnostics: Iterable[Diagnostic]) -> list[Loss]:
    return [
        Loss("file" if found.line is None else f"line {found.line}", found.code, found.message)
        for found in diagnostics
        if found.is_problem or found.code == "half-character"
    ]


def render_as_trajectory(loaded: Loaded, *, header: bool = True) -> tuple[bytes, list[Loss]]:
    """Render trajectory.jsonl; later generations of aec-bench refuse the header."""
    # Only the first generation has a header; later ones refuse it.
    lines = [render_line(HEADER)] if header else []
    lines += [render_line(msgspec.to_builtins(entry)) for entry in loaded.entries]
    return b"".join(lines), loaded.losses


def render_as_atif(loaded: Loaded, agent: Agent | None = None) -> tuple[bytes, list[Loss]]:
    """Render an ATIF document of version 1.7, which harbor's validator accepts."""
    atif, losses = from_entries(loaded.entries, agent=agent)
    return render_atif(atif), [*loaded.losses, *losses]
