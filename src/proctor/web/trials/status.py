"""Status of a trial: its reviews, open findings, and replacements."""

from dataclasses import dataclass
from typing import Any

from proctor.ledger.entry import (
    RescoreEntry,
    ReviewEntry,
    Subject,
    SupersedeEntry,
    WithholdEntry,
)
from proctor.trial.finding import Level, level_of, meaning_of
from proctor.web.trials.known import Known


@dataclass(frozen=True, slots=True)
class ShownFinding:
    """An integrity finding."""

    code: str
    level: Level
    meaning: str | None
    phase: str
    message: str
    detail: object


@dataclass(frozen=True, slots=True)
class TrialReplacement:
    """A replacement of one trial by another, seen from one of them."""

    entry: SupersedeEntry
    other: Subject
    is_replaced: bool
    """Whether the viewed trial is the one that no longer counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStatus:
    """Reviews, findings and replacements of a trial."""

    reviews: tuple[ReviewEntry, ...]
    """In the order they were written; the last one counts."""
    replacements: tuple[TrialReplacement, ...]
    rescores: tuple[RescoreEntry, ...]
    withholdings: tuple[WithholdEntry, ...]
    gone: tuple[int, ...]
    """Entries about it that were withheld."""
    findings: tuple[ShownFinding, ...]

    @property
    def settled_by(self) -> ReviewEntry | None:
        """The latest review if it gives a verdict; one that defers leaves findings open."""
        last = self.reviews[-1] if self.reviews else None
        return last if last is not None and last.verdict != "defer" else None


def collect_status(known: Known) -> TrialStatus:
    """Collect the status of a trial."""
    entries = [remark.entry for remark in known.remarks]
    record = known.row.record if known.row else None
    return TrialStatus(
        reviews=tuple(each for each in entries if isinstance(each, ReviewEntry)),
        replacements=tuple(
            _seen_from(each, record) for each in entries if isinstance(each, SupersedeEntry)
        ),
        rescores=tuple(each for each in entries if isinstance(each, RescoreEntry)),
        withholdings=tuple(each for each in entries if isinstance(each, WithholdEntry)),
        gone=tuple(
            remark.seq for remark in known.remarks if getattr(remark.entry, "kind", None) is None
        ),
        findings=_read_findings(known),
    )


def _seen_from(entry: SupersedeEntry, record: str | None) -> TrialReplacement:
    is_replaced = entry.subject.record == record
    return TrialReplacement(entry, entry.by if is_replaced else entry.subject, is_replaced)


def _read_findings(known: Known) -> tuple[ShownFinding, ...]:
    """Alarms first, infos last."""
    found = map(_read_finding, known.entry.findings if known.entry else ())
    return tuple(sorted(found, key=lambda each: -each.level.rank))


def _read_finding(found: dict[str, Any]) -> ShownFinding:
    code = str(found.get("code", "?"))
    return ShownFinding(
        code,
        level_of(code),
        meaning_of(code),
        str(found.get("phase") or ""),
        str(found.get("message") or ""),
        found.get("detail") or None,
    )
