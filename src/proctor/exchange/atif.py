"""Sealed trials as ATIF, the format of harbor's `agent/trajectory.json`, version 1.7.

    EXPERIMENT/TRIAL/trajectory.json
    EXPERIMENT/TRIAL/STEP/trajectory.json     for a multi-step trial
    EXPERIMENT/TRIAL/images/…                 media that a document refers to
    losses.jsonl                              what the format could not keep

A valid ATIF file in the evidence, of any version, is copied byte for byte; any other trace is
converted. A trial without a trace is left out and reported, because ATIF contains only traces.
"""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from proctor.contained import create_below
from proctor.errors import NotSealedError, TraceError
from proctor.exchange.exporting import (
    NAME,
    Exported,
    Report,
    SelectedTrial,
    Selection,
    list_withheld,
    new_directory,
    read_trace,
    read_trials,
    report_withheld,
    writable,
)
from proctor.files import read_small
from proctor.ledger.keeping import check_evidence_path
from proctor.record.ids import make_id
from proctor.record.model import TrialRecord
from proctor.traces.atif.carry import split_document
from proctor.traces.atif.convert import from_entries
from proctor.traces.atif.model import UNKNOWN_AGENT, Agent, Atif, Content, FinalMetrics
from proctor.traces.atif.read import parse_atif
from proctor.traces.atif.rules import render_atif
from proctor.traces.entry import Object, TraceKind
from proctor.traces.loss import Loss, list_losses, render_summary
from proctor.traces.traced_trial import FoundTrace, opened_traces

_FILE = "trajectory.json"


def export_trials(selection: Selection, target: Path) -> Exported:
    """Write one document per trial or step below a new directory."""
    withheld = list_withheld(selection.ledger)
    with new_directory(target) as place, (place / NAME).open("xb") as file:
        report = Report(file)
        for trial in read_trials(selection, report):
            report_withheld(trial, withheld, report)
            with writable(trial, report):
                _write_trial(selection, trial, place, report)
    return report.exported(target, target / NAME)


def _write_trial(selection: Selection, trial: SelectedTrial, place: Path, report: Report) -> None:
    documents = list(_make_documents(trial))
    if not documents:
        report.leave_out(
            f"{trial.name}: it left no trace that can be read, and ATIF holds nothing else"
        )
        return
    for document in documents:
        folder = f"{trial.name}/{make_id(document.part)}" if document.part else trial.name
        with create_below(place, f"{folder}/{_FILE}") as file:
            file.write(document.data)
        missing = _write_media(selection, trial, document, place / folder)
        report.lose(trial.name, [*document.losses, *missing], document.part)
    report.lose(trial.name, list_losses(trial.document(), _read_back(documents[0])))
    report.trials += 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Document:
    part: str
    folder: str
    """Directory of its trace in the evidence."""
    data: bytes
    losses: list[Loss]

    @property
    def atif(self) -> Atif:
        return parse_atif(self.data, salvage=True).atif


def _make_documents(trial: SelectedTrial) -> Iterator[_Document]:
    traced = trial.traced
    originals = dataclasses.replace(
        traced, files=tuple(name for name in traced.files if PurePosixPath(name).name == _FILE)
    )
    with opened_traces(originals) as atifs, opened_traces(traced) as traces:
        by_part = {found.part: found for found in atifs}
        for found in traces:
            yield _make_document(trial, by_part.get(found.part, found), alone=len(traces) == 1)


def _make_document(trial: SelectedTrial, found: FoundTrace, *, alone: bool) -> _Document:
    folder = str(PurePosixPath(found.name).parent)
    if found.kind is TraceKind.ATIF:
        data = read_small(found.path)
        if _is_valid(data):
            return _Document(found.part, folder, data, [])
    trace = read_trace(found)
    _, carried = split_document(trace.entries[0])
    atif, losses = from_entries(
        trace.entries,
        agent=None if carried.agent else _make_agent(trial.record),
        session_id=carried.session_id or trial.record.trial_id,
    )
    if alone and atif.final_metrics is None:
        atif = msgspec.structs.replace(atif, final_metrics=_sum_up(trial.record))
    return _Document(found.part, folder, render_atif(atif), [*trace.losses, *losses])


def _is_valid(data: bytes) -> bool:
    try:
        parse_atif(data)
    except TraceError:
        return False
    return True


def _make_agent(record: TrialRecord) -> Agent:
    agent = record.agent
    version = agent.adapter_revision or UNKNOWN_AGENT.version
    return Agent(name=agent.adapter, version=version, model_name=agent.model)


def _sum_up(record: TrialRecord) -> FinalMetrics | None:
    cost = record.cost
    if cost is None:
        return None
    return FinalMetrics(
        total_prompt_tokens=cost.tokens_in,
        total_completion_tokens=cost.tokens_out,
        total_cached_tokens=cost.cache_read_tokens,
        total_cost_usd=cost.estimated_cost_usd,
    )


def _read_back(document: _Document) -> Object:
    """The fields of a record that a document contains."""
    atif = document.atif
    total = atif.final_metrics or FinalMetrics()
    agent = {
        "adapter": atif.agent.name,
        "adapter_revision": atif.agent.version,
        "model": atif.agent.model_name,
    }
    cost = {
        "tokens_in": total.total_prompt_tokens,
        "tokens_out": total.total_completion_tokens,
        "cache_read_tokens": total.total_cached_tokens,
        "estimated_cost_usd": total.total_cost_usd,
    }
    return {"record": {"trial_id": atif.session_id, "agent": agent, "cost": cost}}


def _write_media(
    selection: Selection, trial: SelectedTrial, document: _Document, folder: Path
) -> list[Loss]:
    """Copy the media that a document refers to next to it; report those that are missing."""
    kept = {file.path: file for file in trial.entry.evidence}
    losses: list[Loss] = []
    for name in sorted(set(_find_media(document.atif))):
        if "://" in name or name.startswith("data:"):
            continue
        file = kept.get(str(PurePosixPath(document.folder, name)))
        if file is None or not _is_plain(name) or not selection.ledger.artifacts.holds(file.sha256):
            losses.append(Loss("media", render_summary(name), "it is not among the evidence"))
        elif not os.path.lexists(folder / name):
            with create_below(folder, name) as target:
                selection.ledger.artifacts.copy_sealed(file.sha256, file.size, target)
    return losses


def _is_plain(name: str) -> bool:
    try:
        check_evidence_path(name, "media")
    except NotSealedError:
        return False
    return True


def _find_media(atif: Atif) -> Iterator[str]:
    for step in atif.steps:
        yield from _paths_in(step.message)
        for result in step.observation.results if step.observation else ():
            yield from _paths_in(result.content)
    for embedded in atif.subagent_trajectories or ():
        yield from _find_media(embedded)


def _paths_in(content: Content | None) -> Iterator[str]:
    if content is not None and not isinstance(content, str):
        yield from (part.source.path for part in content if part.source is not None)
