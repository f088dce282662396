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
from proctor.record.reasons import name_outcome
from proctor.record.rules import explain_partial
from proctor.report.statistics.efficiency import PASS_MARK
from proctor.sentence import render_figure
from proctor.traces.tool_errors import ToolError
from proctor.traces.trial_summary import TrialSummary, summarise_traced
from proctor.trial.clean_room_result import describe_rewards
from proctor.trial.finding import Level
from proctor.web.data_source import DataSource
from proctor.web.format import path_part, trial_path
from proctor.web.pages import render_page
from proctor.web.reviews import may_write
from proctor.web.sanitize import shorten, visible
from proctor.web.trials.labels import CAUSES, REASONS, STATUSES
from proctor.web.trials.parts import (
    collect_status,
    draw_timeline,
    find_changed,
    find_clean_room,
    find_media,
    find_usage,
    load_times,
    read_verifier_outputs,
)
from proctor.web.trials.score import derive_score
from proctor.web.trials.trial_view import SUMMARIES, TrialView, opened_trial

_MOST_FILES = 200
_LONGEST_JSON = 20_000


def _show_trial(request: Request) -> Response:
    source: DataSource = request.app.state.source
    experiment, trial = request.path_params["experiment"], request.path_params["trial"]
    with opened_trial(source, experiment, trial) as known:
        values = gather(
            known, SUMMARIES.find_or_make(known.key, lambda: summarise_traced(known.traced))
        )
        # The review that was just written, according to the address.
        review = request.query_params.get("review", "")
        is_number = review.isascii() and review.isdecimal() and len(review) < 19
        values["review"] = int(review) if is_number else None
        values["may_write"] = may_write(request)
        values["all_files"] = "files" in request.query_params
        return render_page("trial.html", **values)


def gather(known: TrialView, summary: TrialSummary) -> dict[str, Any]:
    """Values of the page."""
    address = trial_path(known.experiment, known.trial)
    times = load_times(known)
    steps = [step.step_name for step in times.step_results or ()]
    changed = find_changed(known)
    status = collect_status(known)
    outcome, *verdict = _judge(known)

    def trace_path(error: ToolError | None = None) -> str:
        """The address of the trace, at an error if one is given."""
        if error is None:
            return f"{address}/trace"
        part = f"?part={path_part(error.part)}" if error.part else ""
        return f"{address}/trace{part}#step-{error.step}"

    return {
        "title": shorten(f"{known.trial} · {known.experiment}", 200),
        "known": known,
        "record": known.record,
        "size": known.ledger.checkpoint().tree.size if known.ledger and known.is_sound else None,
        "summary": summary,
        "verdict": verdict,
        "outcome": outcome,
        "failures": summary.failures,
        "alarms": [each for each in status["findings"] if each["level"] is Level.ALARM],
        "reason_words": REASONS.get(known.traced.reason_code or ""),
        "cause_words": CAUSES,
        "status_words": STATUSES,
        "status_names": SHOWN,
        "derivation": derive_score(known, steps),
        "timeline": draw_timeline(known, times),
        "spent": find_usage(known, summary),
        "ledger_status": status,
        "changed": changed,
        "room": find_clean_room(known, has_changes=bool(changed)),
        "outputs": read_verifier_outputs(known),
        "errors": times.errors,
        "media": list(find_media(known)),
        "pins": _find_pins(known),
        "missing": explain_partial(known.record) if known.record else [],
        "first_error": summary.trace.errors.first,
        "most_files": _MOST_FILES,
        "address": address,
        "trace_path": trace_path,
        "file_path": known.file_path,
        "shorten": shorten,
        "visible": visible,
        "as_json": as_json,
        "describe_rewards": describe_rewards,
    }


def _judge(known: TrialView) -> tuple[str, str, str]:
    """How the trial ended in a word or two, its score as text, and its colour class."""
    record = known.record
    if known.damage is not None:
        return "Unknown", "damaged", "bad"
    if known.is_withheld:
        return "Withheld", "withheld", "warn"
    reward = record.evaluation.reward if record else None
    if reward is None:
        name = name_outcome(None, has_rewards=known.traced.reason_code is None)
        return name.capitalize(), name if record else "no record", "warn"
    if reward >= PASS_MARK:
        return "Passed", render_figure(reward), "good"
    return "Failed", render_figure(reward), "bad" if reward <= 0 else "plain"


def _find_pins(known: TrialView) -> dict[str, str | None]:
    """The versions that decided the trial; None for unknown ones."""
    record = known.record
    if record is None:
        return {}
    agent, environment = record.agent, record.environment
    tools = [f"{tool} {version}" for tool, version in (environment.tool_versions or {}).items()]
    return {
        "task": f"{record.task.task_id} at {record.task.task_revision}",
        "dataset": record.dataset_id or (known.row.dataset_id if known.row else None),
        "agent": agent.adapter,
        "adapter revision": agent.adapter_revision,
        "model": render_model(agent.model, agent.configuration),
        "image": environment.runtime_image,
        "backend": environment.compute_backend,
        "tools": ", ".join(tools) or None,
        "settings digest": settings_digest(agent.adapter_revision, agent.configuration),
        "record SHA-256": record_digest(known.entry) if known.entry and known.row else None,
    }


def as_json(value: object) -> str:
    """Format a value as JSON for people, shortened with a note."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=msgspec.to_builtins)
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    return shorten(text, _LONGEST_JSON)


routes: list[BaseRoute] = [Route("/trials/{experiment}/{trial}", _show_trial, name="trial")]
