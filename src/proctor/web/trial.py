"""The page of one trial: its score, how it was derived, and the evidence.

    /trials/{experiment}/{trial}

Files have their own pages, see `files`; reviews are submitted through `reviews`.
"""

import json
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.ledger.counting import SHOWN
from proctor.ledger.entry import record_digest
from proctor.record.comparable import render_model, settings_digest
from proctor.record.model import TrialRecord
from proctor.record.reasons import name_outcome
from proctor.record.rules import explain_partial
from proctor.report.statistics.efficiency import PASS_MARK
from proctor.sentence import render_figure
from proctor.traces.tool_errors import ToolError
from proctor.traces.trial_summary import TrialSummary, summarise_traced
from proctor.trial.finding import Level
from proctor.web.pages import render_page
from proctor.web.shown import path_part, trial_path
from proctor.web.subject import Subject
from proctor.web.trials.addresses import file_path
from proctor.web.trials.changed import find_changed, find_room
from proctor.web.trials.known import Known, opened_trial
from proctor.web.trials.outputs import find_errors, find_media, read_verifier_outputs
from proctor.web.trials.phases import draw_timeline, load_times
from proctor.web.trials.remembered import SUMMARIES, key_of
from proctor.web.trials.score import derive_score
from proctor.web.trials.spent import find_usage
from proctor.web.trials.status import collect_status
from proctor.web.trials.words import CAUSES, REASONS, STATUSES
from proctor.web.visible import shorten, visible
from proctor.web.writing import may_write

_MOST_FILES = 200
_LONGEST_JSON = 20_000


def _show_trial(request: Request) -> Response:
    subject: Subject = request.app.state.subject
    experiment, trial = request.path_params["experiment"], request.path_params["trial"]
    with opened_trial(subject, experiment, trial) as known:
        where = known.row.record if known.row else known.traced.name
        key = key_of(where, known.files)
        values = gather(known, SUMMARIES.find_or_make(key, lambda: summarise_traced(known.traced)))
        values["review"] = _find_new(request)
        values["may_write"] = may_write(request)
        values["all_files"] = "files" in request.query_params
        return render_page("trial.html", **values)


def _find_new(request: Request) -> int | None:
    """The review that was just written, according to the address."""
    given = request.query_params.get("review", "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 19 else None


def gather(known: Known, summary: TrialSummary) -> dict[str, Any]:
    """Values of the page."""
    address = trial_path(known.experiment, known.trial)
    times = load_times(known)
    changed = find_changed(known)
    ledger_status = collect_status(known)
    return {
        "title": shorten(f"{known.trial} · {known.experiment}", 200),
        "known": known,
        "record": known.traced.record,
        "size": known.ledger.checkpoint().tree.size if known.ledger and known.is_sound else None,
        "summary": summary,
        "verdict": _describe_verdict(known),
        "outcome": _name_outcome(known),
        "failures": summary.failures,
        "alarms": [each for each in ledger_status.findings if each.level is Level.ALARM],
        "reason_words": REASONS.get(known.traced.reason_code or ""),
        "cause_words": CAUSES,
        "status_words": STATUSES,
        "status_names": SHOWN,
        "derivation": derive_score(known, times.steps if times else ()),
        "timeline": draw_timeline(known, times),
        "spent": find_usage(known, summary),
        "ledger_status": ledger_status,
        "changed": changed,
        "room": find_room(known, changed),
        "outputs": read_verifier_outputs(known),
        "errors": find_errors(times),
        "media": find_media(known),
        "pins": _find_pins(known),
        "missing": _find_missing(known.traced.record),
        "first_error": summary.trace.errors.first,
        "most_files": _MOST_FILES,
        "address": address,
        "trace_path": lambda error=None: _trace_path(address, error),
        "file_path": lambda path: file_path(known.experiment, known.trial, path),
        "shorten": shorten,
        "visible": visible,
        "as_json": as_json,
    }


def _name_outcome(known: Known) -> str:
    """How the trial ended, in a word or two."""
    record = known.traced.record
    reward = record.evaluation.reward if record else None
    if known.damage is not None:
        return "Unknown"
    if known.is_withheld:
        return "Withheld"
    if reward is None:
        return _name_unrewarded(known).capitalize()
    return "Passed" if reward >= PASS_MARK else "Failed"


def _name_unrewarded(known: Known) -> str:
    """The outcome of a trial whose record has no reward."""
    return name_outcome(None, has_rewards=known.traced.reason_code is None)


def _describe_verdict(known: Known) -> tuple[str, str]:
    """The score as text, and its colour class."""
    record = known.traced.record
    if known.damage is not None:
        return "damaged", "bad"
    if known.is_withheld:
        return "withheld", "warn"
    if record is None:
        return "no record", "warn"
    reward = record.evaluation.reward
    if reward is None:
        return _name_unrewarded(known), "warn"
    colour = "good" if reward >= PASS_MARK else "bad" if reward <= 0 else "plain"
    return render_figure(reward), colour


def _find_pins(known: Known) -> list[tuple[str, str | None]]:
    """The versions that decided the trial; None for unknown ones."""
    record = known.traced.record
    if record is None:
        return []
    agent, environment = record.agent, record.environment
    tools = ", ".join(
        f"{tool} {version}" for tool, version in (environment.tool_versions or {}).items()
    )
    return [
        ("task", f"{record.task.task_id} at {record.task.task_revision}"),
        ("dataset", record.dataset_id or (known.row.dataset_id if known.row else None)),
        ("agent", agent.adapter),
        ("adapter revision", agent.adapter_revision),
        ("model", render_model(agent.model, agent.configuration)),
        ("image", environment.runtime_image),
        ("backend", environment.compute_backend),
        ("tools", tools or None),
        ("settings digest", settings_digest(agent.adapter_revision, agent.configuration)),
        ("record SHA-256", record_digest(known.entry) if known.entry and known.row else None),
    ]


def _find_missing(record: TrialRecord | None) -> list[str]:
    return [] if record is None else explain_partial(record)


def _trace_path(address: str, error: ToolError | None) -> str:
    """The address of the trace, at an error if one is given."""
    if error is None:
        return f"{address}/trace"
    part = f"?part={path_part(error.part)}" if error.part else ""
    return f"{address}/trace{part}#step-{error.step}"


def as_json(value: object) -> str:
    """Format a value as JSON for people, shortened with a note."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=msgspec.to_builtins)
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    return shorten(text, _LONGEST_JSON)


routes: list[BaseRoute] = [Route("/trials/{experiment}/{trial}", _show_trial, name="trial")]
