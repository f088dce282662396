"""Renders the summary of a trial. Unknown values are named so, never shown as empty."""

import textwrap
from collections.abc import Iterator, Mapping

from proctor.cli.showing.trial_text import list_failures
from proctor.record.reasons import outcome_of
from proctor.report.page.figures import UNKNOWN, render_seconds
from proctor.sentence import count_of, printable, render_figure, render_money, render_percent
from proctor.traces.calls import LoopSummary, WriteSummary
from proctor.traces.causes import Cause
from proctor.traces.summary import Behaviour, TraceSummary
from proctor.traces.tool_errors import ErrorSummary, ToolError
from proctor.traces.trial_summary import TrialSummary
from proctor.traces.usage import TimeSummary

_LABEL = 15
_NARROWEST = 40
_SHOWN = 8
_LINES = 8

type Field = tuple[str, str]
"""A label and its value, which may have several lines."""


def render_trial(summary: TrialSummary, width: int) -> Iterator[str]:
    """Render the page of one trial in `width` columns."""
    for label, text in _fields(summary):
        yield from render_field(label, text, width)
    for part in summary.parts:
        yield ""
        yield printable(f"step {part.part}")
        for label, text in _trace_fields(part):
            yield from render_field(label, text, width)


def render_field(label: str, text: str, width: int) -> Iterator[str]:
    """Render a label and its text, wrapped; control characters are escaped."""
    room = max(width, _NARROWEST) - _LABEL
    lines = text.split("\n")
    if len(lines) > _LINES:
        left = len(lines) - _LINES + 1
        lines = [*lines[: _LINES - 1], f"… {count_of(left, 'more line')}"]
    broken = [piece for line in lines for piece in _break(printable(line), room)]
    for at, piece in enumerate(broken):
        yield f"{label if at == 0 else '':<{_LABEL}}{piece}".rstrip()


def _break(line: str, room: int) -> list[str]:
    return textwrap.wrap(line, room, break_on_hyphens=False) or [""]


def _fields(summary: TrialSummary) -> Iterator[Field]:
    yield "trial", summary.name
    if summary.task_id is not None:
        yield "task", summary.task_id
        yield "agent", f"{summary.agent}, model {summary.model}"
        yield "reward", render_reward(summary)
    if summary.problem is not None:
        yield "problem", summary.problem
    for label, lines in list_failures(summary.failures, str):
        yield label, "\n".join(lines)
    if summary.cause is not None:
        yield "cause", render_cause(summary.cause)
    if summary.limit is not None:
        yield "limit hit", f"{summary.limit.kind}: {summary.limit.said} ({summary.limit.where})"
    trace = summary.trace
    yield from _trace_fields(trace, turns=_render_turns(summary))
    yield "tokens", _render_tokens(summary)
    advisor = summary.advisor
    if advisor.calls:
        text = f", {_count(advisor.input)} in, {_count(advisor.output)} out"
        yield "advisor", f"{count_of(advisor.calls, 'call')}{text}"


def _trace_fields(trace: TraceSummary, turns: str | None = None) -> Iterator[Field]:
    file = f": {trace.file}" if trace.file else ""
    yield (
        "source",
        "\n".join([f"{trace.source}{file}", *(f"not used: {why}" for why in trace.passed_over)]),
    )
    if trace.degraded:
        more = "\n".join(trace.noticed)
        yield "degraded", f"{count_of(trace.diagnostics, 'problem')} in the file\n{more}"
    if trace.is_output:
        yield "turns", "none: the agent wrote no trace of its own, and its output has no steps"
        yield "time", f"{render_seconds(trace.times.wall_seconds)}, by the output"
        return
    yield "turns", turns if turns is not None else _turns(trace)
    yield (
        "messages",
        f"{trace.messages:,}: {render_counts(trace.by_role)}"
        + (
            f"; {count_of(trace.warmup, 'warmup entry', 'warmup entries')} left out"
            if trace.warmup
            else ""
        ),
    )
    yield "tool calls", f"{trace.tool_calls:,}: {render_counts(trace.by_tool)}"
    yield from _error_fields(trace.errors)
    yield "loops", _render_loops(trace.loops)
    yield "time", _render_times(trace.times)
    yield "written", _render_writes(trace.written)
    found = trace.subagents
    if found.messages:
        calls, errors = (
            count_of(found.tool_calls, "tool call"),
            count_of(found.tool_errors, "error"),
        )
        yield "subagents", f"{count_of(found.messages, 'message')}, {calls}, {errors} of the above"
    if found.embedded or found.elsewhere:
        inside = f"{count_of(found.embedded, 'trajectory', 'trajectories')} embedded"
        steps = f"{count_of(found.embedded_steps, 'step')}"
        calls = count_of(found.embedded_tool_calls, "tool call")
        away = f"; {found.elsewhere:,} in other files" if found.elsewhere else ""
        yield "subagents", f"{inside} ({steps}, {calls}), not in the above{away}"
    if trace.behaviour is not None:
        yield "behaviour", render_behaviour(trace.behaviour)


def render_reward(summary: TrialSummary) -> str:
    """The reward, or why there is none."""
    if summary.reward is not None:
        return render_figure(summary.reward)
    return outcome_of(summary) + (f": {summary.reason_code}" if summary.reason_code else "")


def render_cause(cause: Cause) -> str:
    """A cause, with the evidence below it."""
    lines = [f"{cause.kind} (rule {cause.rule})"]
    lines += [f"{each.where}: {' '.join(each.quote.split())}" for each in cause.evidence]
    return "\n".join(lines)


def render_counts(counts: Mapping[str, int], most: int = _SHOWN) -> str:
    """Counts by name, the most frequent first, and the number of other names."""
    shown = [f"{name or '(unnamed)'} {count:,}" for name, count in list(counts.items())[:most]]
    if len(counts) > most:
        shown.append(f"{len(counts) - most:,} more")
    return ", ".join(shown) or "none"


def render_behaviour(behaviour: Behaviour) -> str:
    """The share of each class, and the number of turns."""
    shares = ", ".join(
        f"{label} {render_percent(share)}" for label, share in behaviour.shares.items()
    )
    return f"{shares or 'none'} of {count_of(behaviour.turns, 'turn')}"


def _count(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def _turns(trace: TraceSummary) -> str:
    return f"{trace.turns:,}" if trace.turns_are_exact else f"at least {trace.turns:,}"


def _render_turns(summary: TrialSummary) -> str:
    counted = _turns(summary.trace)
    if summary.turns_reported is None:
        return counted
    most = f" of at most {summary.max_turns:,}" if summary.max_turns else ""
    text = f"the agent reports {summary.turns_reported:,}{most}"
    return f"{counted}; {text}" + (" - these disagree" if summary.turns_disagree else "")


def _error_fields(errors: ErrorSummary) -> Iterator[Field]:
    if not errors.total:
        yield "tool errors", f"none in {count_of(errors.results, 'result')}"
        return
    yield (
        "tool errors",
        f"{errors.total:,} in {count_of(errors.results, 'result')} "
        f"({render_percent(errors.rate or 0)})\n"
        f"by reason: {render_counts(errors.by_reason)}\nby tool: {render_counts(errors.by_tool)}"
        + (f"\nby exit code: {render_counts(errors.by_exit_code)}" if errors.by_exit_code else ""),
    )
    if errors.first is not None:
        yield "first error", _render_error(errors.first)
    if errors.last is not None and errors.total > 1:
        yield "last error", _render_error(errors.last)


def _render_error(error: ToolError) -> str:
    where = f"step {error.step}" + (f" of {error.part}" if error.part else "")
    code = "" if error.exit_code is None else f", exit {error.exit_code}"
    lines = [f"{where}, {error.tool or 'a tool'}, {error.reason}{code}"]
    if error.command:
        lines.append(f"$ {' '.join(error.command.split())}")
    lines += [line for line in error.text.splitlines() if line.strip()][-4:]
    return "\n".join([*lines, _render_recovery(error)])


def _render_recovery(error: ToolError) -> str:
    if error.command_worked_at is not None:
        return f"recovered: the same command worked at step {error.command_worked_at}"
    if error.tool_worked_at is not None:
        return f"recovered: the tool worked again at step {error.tool_worked_at}"
    return "not recovered: the tool did not work again"


def _render_loops(loops: LoopSummary) -> str:
    if not loops.repeats:
        return "no call was repeated"
    lines = [f"{count_of(loops.repeats, 'repeated call')}"]
    if run := loops.longest:
        steps = f"steps {run.first_step} to {run.last_step}"
        lines.append(f"{run.times} times in a row ({steps}): {_one_line(run.command or run.tool)}")
    for each in loops.most[:3]:
        lines.append(f"{each.times} times in all: {_one_line(each.command or each.tool)}")
    return "\n".join(lines)


def _one_line(text: str, longest: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _render_times(times: TimeSummary) -> str:
    if times.wall_seconds is None:
        text = "unknown: no timestamps"
    else:
        text = f"{render_seconds(times.wall_seconds)}, idle {render_seconds(times.idle_seconds)}"
        text += f", tools {render_seconds(times.tool_seconds)}"
        text += f", model {render_seconds(times.model_seconds)}" if times.model_seconds else ""
        if times.longest_gap_seconds is not None and times.longest_gap_seconds >= 1:
            gap = render_seconds(times.longest_gap_seconds)
            text += f"; longest gap {gap} before step {times.longest_gap_step}"
    odd = {
        "unreadable": times.unreadable,
        "backward": times.backward,
        "jumping by more than a week": times.jumps,
    }
    parts = [f"{count:,} {name}" for name, count in odd.items() if count]
    return f"{text}\ntimestamps: {', '.join(parts)}" if parts else text


def _render_writes(written: WriteSummary) -> str:
    if not written.calls:
        return "nothing, judging by commands and arguments"
    text = f"{count_of(written.files, 'file')} by {count_of(written.calls, 'call')}"
    text += f", first at step {written.first_step}"
    if written.seconds_to_first is not None:
        text += f" after {render_seconds(written.seconds_to_first)}"
    names = [_one_line(each.path, 60) for each in written.shown[:_SHOWN]]
    more = f", {written.files - _SHOWN:,} more" if written.files > _SHOWN else ""
    return f"{text}\n{', '.join(names)}{more}"


def _render_tokens(summary: TrialSummary) -> str:
    tokens = summary.tokens
    if tokens.source == "unknown":
        return UNKNOWN
    parts = [f"{_count(tokens.input)} in", f"{_count(tokens.output)} out"]
    if tokens.cache_read is not None:
        parts.append(f"{tokens.cache_read:,} from cache")
    if tokens.cache_write is not None:
        parts.append(f"{tokens.cache_write:,} to cache")
    rates = (summary.tokens_in_per_turn, summary.tokens_out_per_turn)
    if rates[0] is not None or rates[1] is not None:
        each = " and ".join(UNKNOWN if rate is None else f"{rate:,.0f}" for rate in rates)
        parts.append(f"{each} a turn")
    cost = f"; {render_money(summary.cost_usd)}" if summary.cost_usd is not None else ""
    return f"{', '.join(parts)} (from the {tokens.source}){cost}"
