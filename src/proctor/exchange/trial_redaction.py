"""Secrets taken out of a record and of all that is said beside it.

Text that is cut or quoted on its way into a record is redacted before: half a secret is one too,
and no longer found. The rest is redacted as it will be written.
"""

import json
from typing import Final

import msgspec

from proctor.errors import RecordError
from proctor.exchange.made import MadeRecord
from proctor.exchange.trial_sources import Sources
from proctor.harbor.account import TrialAccount
from proctor.harbor.documents import ExceptionDocument
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record, render_record
from proctor.traces.entry import Entry
from proctor.traces.trace import Trace
from proctor.traces.writer import Redactor

_STUCK: Final = "a secret stands where none can be taken out"


def redact_sources(sources: Sources, redactor: Redactor) -> Sources:
    """The same without secrets in exceptions and in the names of media."""
    account, evidence = sources.account, sources.evidence
    trace = _redact_media(evidence.trace, redactor) if evidence.trace else None
    return msgspec.structs.replace(
        sources,
        account=_redact_exceptions(account, redactor) if account else None,
        evidence=msgspec.structs.replace(evidence, trace=trace),
    )


def _redact_exceptions(account: TrialAccount, redactor: Redactor) -> TrialAccount:
    def clean(error: ExceptionDocument | None) -> ExceptionDocument | None:
        if error is None:
            return None
        texts = (error.exception_type, error.exception_message)
        return ExceptionDocument(*map(redactor.redact_text, texts))

    steps = [
        msgspec.structs.replace(step, exception_info=clean(step.exception_info))
        for step in account.step_results or ()
    ]
    return msgspec.structs.replace(
        account, exception_info=clean(account.exception_info), step_results=steps or None
    )


def _redact_media(trace: Trace, redactor: Redactor) -> Trace:
    def clean(entry: Entry) -> Entry:
        media = entry.media
        names = [redactor.redact_text(name) for name in media] if media else media
        return entry if names == media else msgspec.structs.replace(entry, media=names)

    return msgspec.structs.replace(trace, entries=list(map(clean, trace.entries)))


def redact_record(record: TrialRecord, redactor: Redactor) -> TrialRecord:
    """The record without secrets.

    Raises:
        RecordError: what is left of it is no record.
    """
    written = json.loads(render_record(record))
    clean = redactor.redact(written)
    if clean == written:
        return record
    try:
        return parse_record(json.dumps(clean).encode(), "the record").record
    except RecordError as error:
        raise RecordError(f"{_STUCK}: {error}") from error


def redact_rest(made: MadeRecord, redactor: Redactor) -> MadeRecord:
    """What lies beside the record, without secrets, and what was taken out of both.

    Raises:
        RecordError: what is left of it has lost its meaning.
    """

    def clean[Value](value: Value) -> Value:
        return msgspec.convert(redactor.redact(msgspec.to_builtins(value)), type(value))

    try:
        made = msgspec.structs.replace(
            made,
            pins=clean(made.pins),
            cost_basis=clean(made.cost_basis),
            evidence=tuple(map(clean, made.evidence)),
            notes=tuple(map(redactor.redact_text, made.notes)),
        )
    except msgspec.ValidationError as error:
        raise RecordError(f"{_STUCK}: {error}") from error
    return msgspec.structs.replace(made, redactions=tuple(redactor.report()))
