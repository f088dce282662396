"""One trial as a document: its score and how it came to be, what it did, and what pins it."""

import json
from collections.abc import Iterator

from proctor.errors import DamageError, InputError
from proctor.ledger.row import TrialRow
from proctor.report.levels import tone_of_codes
from proctor.report.page.blocks import (
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Heading,
    Paragraph,
    Table,
)
from proctor.report.page.figures import (
    UNKNOWN,
    render_money,
    render_number,
    render_percent,
    render_seconds,
)
from proctor.report.site.changes import tell_changes
from proctor.report.site.outputs import tell_printed, tell_rewards
from proctor.report.site.steps import cut_text, tell_trace
from proctor.traces.traced_trial import TracedTrial
from proctor.traces.trial_summary import TrialSummary
from proctor.trial.finding import level_of, sort_codes

_MOST_FILES = 200


def tell_trial(attempt: TrialRow, trial: TracedTrial, summary: TrialSummary) -> Document:
    """The page of a trial; what cannot be read of it is said in its place."""
    blocks: list[Block] = [Facts(tuple(_tell_score(attempt)))]
    if summary.problem:
        blocks.append(Paragraph(_without_place(summary.problem, attempt), "bad"))
    for code in sort_codes(attempt.findings):
        told = f"Integrity finding ({level_of(code)}): {code}"
        blocks.append(Paragraph(told, tone_of_codes([code])))
    blocks += [Heading("How the score came to be"), *_tell_derivation(attempt, trial)]
    blocks += [Heading("What happened"), Facts(tuple(_tell_summary(summary, attempt)))]
    blocks += tell_changes(trial)
    blocks += [Heading("What the verifier printed"), *tell_printed(trial)]
    blocks += [Heading("What pins it"), *_tell_pins(attempt, trial)]
    blocks += [Heading("Trace"), *_tell_trace(trial, attempt)]
    return Document(attempt.trial_id, tuple(blocks))


def _without_place(text: str, attempt: TrialRow) -> str:
    """A sentence without the place on this machine."""
    return text.replace(attempt.place, attempt.trial_id) if attempt.place else text


def render_reward(attempt: TrialRow) -> str:
    """The reward, or that there is none and why."""
    if attempt.reward is not None:
        return render_number(attempt.reward)
    return f"not scored: {attempt.reason_code}" if attempt.reason_code else "not scored"


def _tell_score(attempt: TrialRow) -> Iterator[tuple[str, str]]:
    yield "experiment", attempt.experiment_id
    yield "task", attempt.task_id or UNKNOWN
    yield "reward", render_reward(attempt)
    yield "agent", attempt.agent or UNKNOWN
    yield "model", attempt.model or UNKNOWN
    yield "record", f"{attempt.status}, {attempt.completeness or UNKNOWN}"
    yield "from", attempt.source or "run by proctor"
    yield "when", attempt.timestamp or UNKNOWN
    yield "took", render_seconds(attempt.seconds)
    yield "cost", render_money(attempt.cost_usd)
    yield "review", attempt.review or "none"


def _tell_derivation(attempt: TrialRow, trial: TracedTrial) -> Iterator[Block]:
    yield from tell_rewards(trial)
    record = trial.record
    profile = attempt.run_conditions.profile if attempt.run_conditions else None
    if record is not None:
        rewards = cut_text(json.dumps(record.evaluation.breakdown, ensure_ascii=False, default=str))
        by = f"Scoring profile {profile}" if profile else "Marked elsewhere: the record"
        yield Paragraph(f"{by} makes of it {' '.join(rewards)}.")
        for sentence in record.evaluation.validity.errors:
            yield Paragraph(_without_place(sentence, attempt), "warn")
    yield Paragraph(f"On record: {render_reward(attempt)}.")


def _tell_summary(summary: TrialSummary, attempt: TrialRow) -> Iterator[tuple[str, str]]:
    trace = summary.trace
    if summary.cause is not None:
        said = [f"{each.where}: {' '.join(each.quote.split())}" for each in summary.cause.evidence]
        rule = f"{summary.cause.kind} (rule {summary.cause.rule})"
        yield "cause of failure", _without_place("\n".join([rule, *said]), attempt)
    if summary.limit is not None:
        yield "limit hit", f"{summary.limit.kind}: {summary.limit.said}"
    if not summary.has_trace:
        yield "trace", "none that could be used"
        return
    yield "turns", f"{trace.turns:,}"
    yield "tool calls", f"{trace.tool_calls:,}"
    yield "tool errors", f"{trace.errors.total:,} in {trace.errors.results:,} results"
    yield "repeated calls", f"{trace.loops.repeats:,}"
    yield "wall time", render_seconds(trace.times.wall_seconds)
    if trace.behaviour is not None and trace.behaviour.turns:
        shares = trace.behaviour.shares.items()
        told = ", ".join(f"{label} {render_percent(share)}" for label, share in shares)
        yield "turns were for", told
    tokens = summary.tokens
    counts = [UNKNOWN if each is None else f"{each:,}" for each in (tokens.input, tokens.output)]
    yield "tokens", f"{counts[0]} in, {counts[1]} out"


def _tell_pins(attempt: TrialRow, trial: TracedTrial) -> Iterator[Block]:
    yield Facts(tuple(_tell_fixed(attempt, trial)))
    files = trial.record.inputs.input_files if trial.record is not None else None
    if files:
        columns = (Column("input file"), Column("sha256"))
        rows = tuple((Cell(each.path), Cell(each.hash)) for each in files[:_MOST_FILES])
        yield Table(columns, rows, "Input files")
        if len(files) > _MOST_FILES:
            yield Paragraph(f"… and {len(files) - _MOST_FILES:,} more; the record has all.", "warn")


def _tell_fixed(attempt: TrialRow, trial: TracedTrial) -> Iterator[tuple[str, str]]:
    conditions, run = attempt.task_conditions, attempt.run_conditions
    yield "record (SHA-256)", attempt.record
    if attempt.place is None:
        yield "entry of the log", f"{attempt.seq:,}"
    yield "task revision", conditions.revision if conditions else UNKNOWN
    yield "image", conditions.image if conditions else UNKNOWN
    yield "agent's revision", attempt.revision or UNKNOWN
    yield "configuration", attempt.configuration or UNKNOWN
    if run is not None:
        yield "backend", run.backend
        changed = ", ".join(f"{name} {value}" for name, value in sorted(run.changed.items()))
        yield "limits", changed or "the default"
    versions = trial.record.environment.tool_versions if trial.record is not None else None
    yield from sorted((versions or {}).items())


def _tell_trace(trial: TracedTrial, attempt: TrialRow) -> Iterator[Block]:
    try:
        yield from tell_trace(trial, attempt.name)
    except (InputError, DamageError) as error:
        yield Paragraph(_without_place(str(error), attempt), "bad")
