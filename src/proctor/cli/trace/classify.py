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
from proctor.cli.options import PATH, sample_option
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
    Behaviour,
    LabelledTrial,
    TrialBehaviour,
    describe_all,
    describe_trial,
    label_trial,
)
from proctor.cli.trace.select_trials import render_left_out, traced_trials
from proctor.errors import InputError
from proctor.ledger.trial_index import TrialFilter
from proctor.report.page.columns import draw_table
from proctor.sentence import count_of, printable, render_figure, render_money, render_percent
from proctor.traces.label_rules import RULES_VERSION
from proctor.traces.labels import LABELS, Agreement
from proctor.traces.traced_trial import TracedTrial

# Rendering of labels, 80 columns wide


_WIDTH = 80
_UNKNOWN = "-"
_LABEL, _CUE, _NAME = 12, 24, 26


def render_one(trial: TrialBehaviour, by: str) -> Iterator[str]:
    """Render one trial, turn by turn."""
    yield from (trial.trial, f"{', '.join(trial.sources)}; labels by {by}")
    yield from (f"not used: {why}" for why in trial.passed_over)
    yield from ("", f"{'step':>5}  {'label':<{_LABEL}}  sure  {'cue':<{_CUE}}  action")
    part = ""
    for turn in trial.labels:
        if turn.part != part:
            part = turn.part
            yield f"in {part}:"
        sure = _UNKNOWN if turn.confidence is None else f"{turn.confidence:.2f}"
        head = f"{turn.step:>5}  {turn.label or 'no label':<{_LABEL}}  {sure:>4}  "
        line = f"{head}{_fit(turn.cue, _CUE):<{_CUE}}  "
        yield (line + _fit(turn.action, _WIDTH - len(line))).rstrip()
    yield ""
    turns = f"{count_of(trial.turns, 'turn')}: {_shares(trial.shares)}"
    yield from wrap(turns, _WIDTH, subsequent_indent="  ")


def _fit(text: str, room: int) -> str:
    """The beginning of a text on one line."""
    shown = printable(text[: room * 2].replace("\n", " ⏎ "))
    return shown if len(shown) <= room else f"{shown[: room - 1]}…"


def _shares(shares: dict[str, float] | None) -> str:
    if shares is None:
        return "none with a label"
    return ", ".join(f"{label} {render_percent(share)}" for label, share in shares.items() if share)


def render_many(described: Sequence[TrialBehaviour], whole: Behaviour, by: str) -> list[str]:
    """Render several trials: a line each, then the totals."""
    lines = [
        f"labels by {by}; shares in %",
        "",
        f"{'trial':<{_NAME}} turns  exe  ver  del  exp  reward",
    ]
    for facts in described:
        # Names differ at their ends.
        name = printable(facts.trial)
        name = name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"
        if facts.problem is not None:
            lines.append(f"{name:<{_NAME}} {_fit(facts.problem, _WIDTH - _NAME - 1)}")
            continue
        shares = [facts.shares[label] if facts.shares else None for label in LABELS]
        cells = "".join(
            f"{_UNKNOWN if share is None else f'{100 * share:.0f}':>5}" for share in shares
        )
        reward = _UNKNOWN if facts.reward is None else render_figure(facts.reward)
        lines.append(f"{name:<{_NAME}} {facts.turns:>5}{cells}  {reward:>6}")
    dominant = [f"{label} in {count:,}" for label, count in whole.dominant.items() if count]
    return [
        *lines,
        "",
        f"{count_of(whole.trials, 'trial')}, {whole.labelled:,} with labels, "
        f"{count_of(whole.turns, 'turn')}: {_shares(whole.shares)}",
        f"most frequent label: {', '.join(dominant) or 'none'}",
    ]


def _draw_matrix(heading: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """A row and a column for each label."""
    labelled = ([label, *row] for label, row in zip(LABELS, rows, strict=True))
    return draw_table([heading, *LABELS], labelled, right=[False, *(True for _ in LABELS)])


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
@sample_option
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
    One trial is shown turn by turn; several are shown as shares. Labels come from rules,
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
        if not by_rules:
            raise InputError("no trial matches the filters")
        if len(by_rules) == 1 and by_rules[0].problem:
            raise InputError(f"{by_rules[0].trial.name}: {by_rules[0].problem}")
        reports = [ask_judge(choice, by_rules) for choice in choices]
    agreements = compute_agreements(by_rules, reports) if agree else []
    trials = [describe_trial(each) for each in (reports[0].trials if reports else by_rules)]
    whole = describe_all(trials)
    if as_json:
        by = {"kind": "judge", **_named(reports[0])} if reports else {"kind": "rules"}
        document = {
            "classifier": {**by, "rules_version": RULES_VERSION},
            "trials": trials,
            "together": whole,
            "judges": [report.facts for report in reports],
            "agreements": agreements,
            "left_out": left_out,
        }
        print_json(msgspec.to_builtins(document))
    else:
        named = reports[0].name if reports else RULES
        one_or_many = (
            render_one(trials[0], named) if len(trials) == 1 else render_many(trials, whole, named)
        )
        judged = (line for report in reports for line in render_judge(report))
        for line in chain(one_or_many, judged, render_agreements(agreements)):
            print_line(line)
        if left_out:
            print_line(render_left_out(left_out))
    without = any(trial.problem for trial in trials) or any(each.n_unlabelled for each in reports)
    return _SOME_WITHOUT if without else 0


def _label(found: Iterator[TracedTrial]) -> Iterator[LabelledTrial]:
    progress, seen = reading_progress("classify"), set[str]()
    for trial in found:
        if trial.name not in seen:
            seen.add(trial.name)
            yield label_trial(trial)
            progress(len(seen), len(seen) + 1)
    progress(len(seen), len(seen))


def _named(report: JudgeReport) -> dict[str, Any]:
    return {key: report.facts[key] for key in ("model", "answered_by", "prompt_version")}
