"""`proctor trace classify`: labels each turn of an agent by its purpose."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from textwrap import wrap
from typing import Any

import click
import msgspec

from proctor.cli.ledger.filters import filter_options
from proctor.cli.ledger.options import ledger_option
from proctor.cli.ledger.progress import reading_progress
from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.trace.judges import (
    RULES,
    JudgeReport,
    ask_judge,
    compute_agreements,
    judge_options,
    parse_judges,
)
from proctor.cli.trace.labels import (
    LabelledTrial,
    LabelledTurn,
    LabelReport,
    find_reward,
    label_trial,
    summarise_labels,
)
from proctor.cli.trace.select_trials import render_left_out, traced_trials
from proctor.errors import InputError
from proctor.ledger.trial_index import TrialFilter
from proctor.report.page.columns import draw_table
from proctor.sentence import count_of, printable, render_figure, render_money, render_percent
from proctor.traces.behaviour import Agreement, Loop, Mean, TrialBehaviour
from proctor.traces.label_rules import RULES_VERSION
from proctor.traces.labels import LABELS
from proctor.traces.traced_trial import TracedTrial

# Rendering of labels, 80 columns wide


_WIDTH = 80
_UNKNOWN = "-"
_LABEL, _CUE, _NAME = 12, 24, 26


def render_one(trial: LabelledTrial, described: TrialBehaviour, by: str) -> Iterator[str]:
    """Render one trial, turn by turn."""
    yield from (trial.trial.name, f"{', '.join(trial.sources)}; labels by {by}")
    yield from (f"not used: {why}" for why in trial.passed_over)
    yield from ("", f"{'step':>5}  {'label':<{_LABEL}}  sure  {'cue':<{_CUE}}  action")
    part = ""
    for turn in trial.turns:
        if turn.part != part:
            part = turn.part
            yield f"in {part}:"
        yield _render_turn(turn)
    yield from ("", *_render_shares(described))


def _render_turn(turn: LabelledTurn) -> str:
    sure = _UNKNOWN if turn.confidence is None else f"{turn.confidence:.2f}"
    head = f"{turn.step:>5}  {turn.label or 'no label':<{_LABEL}}  {sure:>4}  "
    line = f"{head}{_fit(turn.cue, _CUE):<{_CUE}}  "
    return (line + _fit(turn.action, _WIDTH - len(line))).rstrip()


def _fit(text: str, room: int) -> str:
    """The beginning of a text on one line."""
    shown = printable(text[: room * 2].replace("\n", " ⏎ "))
    return shown if len(shown) <= room else f"{shown[: room - 1]}…"


def _render_shares(described: TrialBehaviour) -> Iterator[str]:
    turns = count_of(described.turns, "turn")
    yield from wrap(f"{turns}: {_shares(described.shares)}", _WIDTH, subsequent_indent="  ")
    loops = [f"{label} {loop.longest}" for label, loop in described.loops.items() if loop]
    if loops:
        yield f"longest stretches: {', '.join(loops)}"


def _shares(shares: dict[str, float] | None) -> str:
    if shares is None:
        return "none with a label"
    return ", ".join(f"{label} {render_percent(share)}" for label, share in shares.items() if share)


def render_many(trials: Sequence[LabelledTrial], held: LabelReport, by: str) -> list[str]:
    """Render several trials: a line each, then the totals."""
    lines = [
        f"labels by {by}; shares in %; distances from good runs at the same task (t) or",
        "of its family (f): label transitions (follow), label order (order), 0 = same",
        "",
        f"{'trial':<{_NAME}} turns  exe  ver  del  exp  follow order  runs  reward",
    ]
    described = zip(trials, held.trials, strict=True)
    lines += [_render_row(trial, facts) for trial, facts in described]
    return [*lines, "", *_render_whole(held)]


def _render_row(trial: LabelledTrial, facts: TrialBehaviour) -> str:
    name = _fit_end(trial.trial.name, _NAME)
    if trial.problem is not None:
        return f"{name:<{_NAME}} {_fit(trial.problem, _WIDTH - _NAME - 1)}"
    shares = [facts.shares[label] if facts.shares else None for label in LABELS]
    cells = "".join(f"{_percent(share):>5}" for share in shares)
    near = facts.distance
    distances = (
        f"{near.transitions:7.2f} {near.order:5.2f}  {near.references:>3}{near.basis[0]}"
        if near
        else f"{_UNKNOWN:>7} {_UNKNOWN:>5}  {_UNKNOWN:>4}"
    )
    reward = _UNKNOWN if facts.reward is None else render_figure(facts.reward)
    return f"{name:<{_NAME}} {facts.turns:>5}{cells} {distances}  {reward:>6}"


def _fit_end(text: str, room: int) -> str:
    """The end of a name, where names differ."""
    shown = printable(text)
    return shown if len(shown) <= room else f"…{shown[1 - room :]}"


def _percent(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{100 * share:.0f}"


def _render_whole(held: LabelReport) -> Iterator[str]:
    whole = held.whole
    yield (
        f"{count_of(whole.trials, 'trial')}, {whole.labelled:,} with labels, "
        f"{count_of(whole.turns, 'turn')}: {_shares(whole.shares)}"
    )
    dominant = [f"{label} in {count:,}" for label, count in whole.dominant.items() if count]
    yield f"most frequent label: {', '.join(dominant) or 'none'}"
    yield f"distance of transitions: {_mean(whole.distance_transitions)}"
    yield f"distance of order: {_mean(whole.distance_order)}"
    yield ""
    shares = (
        [_UNKNOWN] * len(LABELS) if row is None else map(_percent, row) for row in whole.matrix
    )
    yield from _draw_matrix("what follows, in %", shares)
    loops = [f"{label} {_loop(loop)}" for label, loop in whole.loops.items() if loop]
    yield f"turns on end, longest (mean): {', '.join(loops) or _UNKNOWN}"


def _draw_matrix(heading: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """A row and a column for each label."""
    labelled = ([label, *row] for label, row in zip(LABELS, rows, strict=True))
    return draw_table([heading, *LABELS], labelled, right=[False, *(True for _ in LABELS)])


def _loop(loop: Loop) -> str:
    return f"{loop.longest:,} ({loop.turns / loop.stretches:.1f})"


def _mean(mean: Mean | None) -> str:
    if mean is None:
        return "undefined: no trial has a good run of another trial to compare with"
    return f"{render_figure(mean.mean)} on average over {count_of(mean.trials, 'trial')}"


def render_judge(report: JudgeReport) -> list[str]:
    """Render the cost of a judge."""
    facts = report.facts
    cost = "cost unknown" if facts["cost_usd"] is None else render_money(facts["cost_usd"])
    answered = ", ".join(facts["answered_by"]) or "the model is unknown"
    lines = [
        "",
        f"{report.name} (answered by {answered}), prompt {facts['prompt_version']}:",
        f"  {count_of(facts['turns'], 'label')}, {facts['known_from_before']:,} from cache; "
        f"{count_of(facts['unlabelled'], 'turn')} unlabelled",
        f"  {count_of(facts['requests'], 'request')}, "
        f"{count_of(facts['retries'], 'retry', 'retries')}; tokens {_count(facts['tokens_in'])} "
        f"in, {_count(facts['tokens_out'])} out; {cost} in all",
    ]
    lines += [f"  {note}" for note in facts["notes"]]
    return lines + ([f"  stopped early: {facts['refusal']}"] if facts["refusal"] else [])


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def render_agreements(agreements: Sequence[dict[str, Any]]) -> list[str]:
    """Render the agreement between labels, pair by pair."""
    lines: list[str] = []
    for each in agreements:
        found: Agreement = each["agreement"]
        kappa = "not defined" if found.kappa is None else render_figure(found.kappa)
        lines += [
            "",
            f"{each['first']} (rows) and {each['second']} (columns): {found.agreed:,} of "
            f"{count_of(found.turns, 'turn')} agree, kappa {kappa}",
            *_draw_matrix("", ([f"{count:,}" for count in row] for row in found.confusion)),
        ]
    return lines


_SOME_WITHOUT = 3


def _with_judges(decorated: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(judge_options):
        decorated = option(decorated)
    return decorated


@click.command("classify")
@click.argument("things", metavar="[THING]...", nargs=-1, type=PATH)
@ledger_option
@json_option
@_with_judges
@filter_options
def command(
    things: tuple[str, ...],
    directory: str | None,
    as_json: bool,
    wanted: TrialFilter,
    **judging: Any,
) -> int:
    """Label each turn of an agent by its purpose.

    Each turn gets one label: execution, verification, deliberation or exploration. THING is a
    trace, a trial, a job, or a sealed trial or experiment; without one, the filters select trials.
    One trial is shown turn by turn; several are shown as shares, with the transitions between
    labels and the distance of each trial from the good runs of its task. Labels come from rules,
    offline; --judge asks a model too, stores its answers, and shows its labels instead. Labels
    never change a score. Exit code 3: some trials have no trace, or a judge left turns without a
    label.

    Example: proctor trace classify jobs/nightly
    """
    agree = judging.pop("agree")
    choices = parse_judges(**judging)
    left_out: Counter[str] = Counter()
    with traced_trials(things, directory, wanted, left_out) as found:
        by_rules = list(_label(found))
        _check_some(by_rules)
        reports = [ask_judge(choice, by_rules) for choice in choices]
    agreements = compute_agreements(by_rules, reports) if agree else []
    shown = reports[0].trials if reports else by_rules
    held = summarise_labels(shown)
    if as_json:
        document = _document(shown, held, reports, agreements)
        print_json({**document, "left_out": left_out})
    else:
        _print(shown, held, reports, agreements)
        if left_out:
            print_line(render_left_out(left_out))
    without = any(trial.problem for trial in shown) or any(each.n_unlabelled for each in reports)
    return _SOME_WITHOUT if without else 0


def _label(found: Iterator[TracedTrial]) -> Iterator[LabelledTrial]:
    progress, seen = reading_progress("classify"), set[str]()
    for trial in found:
        if trial.name not in seen:
            seen.add(trial.name)
            yield label_trial(trial)
            progress(len(seen), len(seen) + 1)
    progress(len(seen), len(seen))


def _check_some(trials: Sequence[LabelledTrial]) -> None:
    if not trials:
        raise InputError("no trial matches the filters")
    if len(trials) == 1 and trials[0].problem:
        raise InputError(f"{trials[0].trial.name}: {trials[0].problem}")


def _print(
    trials: Sequence[LabelledTrial],
    held: LabelReport,
    reports: Sequence[JudgeReport],
    agreements: Sequence[dict[str, Any]],
) -> None:
    by = reports[0].name if reports else RULES
    lines: Iterable[str] = (
        render_one(trials[0], held.trials[0], by)
        if len(trials) == 1
        else render_many(trials, held, by)
    )
    judged = (line for report in reports for line in render_judge(report))
    for line in chain(lines, judged, render_agreements(agreements)):
        print_line(line)


def _document(
    trials: Sequence[LabelledTrial],
    held: LabelReport,
    reports: Sequence[JudgeReport],
    agreements: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    by = {"kind": "judge", **_named(reports[0])} if reports else {"kind": "rules"}
    document: dict[str, Any] = msgspec.to_builtins(
        {
            "classifier": {**by, "rules_version": RULES_VERSION},
            "trials": [
                {
                    **msgspec.to_builtins(described),
                    "sources": trial.sources,
                    "passed_over": trial.passed_over,
                    "problem": trial.problem,
                    "reward": find_reward(trial.trial),
                    "labels": list(trial.turns),
                }
                for trial, described in zip(trials, held.trials, strict=True)
            ],
            "together": held.whole,
            "compat": held.compat,
            "judges": [report.facts for report in reports],
            "agreements": agreements,
        }
    )
    return document


def _named(report: JudgeReport) -> dict[str, Any]:
    return {key: report.facts[key] for key in ("model", "answered_by", "prompt_version")}
