"""`proctor trace classify`: what every turn of an agent was for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import click
import msgspec

from proctor.cli.ledger.filters import filter_options
from proctor.cli.ledger.options import ledger_option
from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line, reading_progress
from proctor.cli.trace_classify_text import render_agreements, render_judge, render_many, render_one
from proctor.cli.trace_judges import (
    RULES,
    JudgeReport,
    ask_judge,
    find_agreements,
    find_seats,
    judge_options,
)
from proctor.cli.trace_labels import Held, LabelledTrial, find_reward, hold_together, label_trial
from proctor.cli.traced import traced_trials
from proctor.errors import InputError
from proctor.ledger.query import TrialFilter
from proctor.traces.label_rules import RULES_VERSION
from proctor.traces.traced_trial import TracedTrial

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
def classify(
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
    seats = find_seats(**judging)
    with traced_trials(things, directory, wanted) as found:
        by_rules = list(_label(found))
        _check_some(by_rules)
        reports = [ask_judge(seat, by_rules) for seat in seats]
    agreements = find_agreements(by_rules, reports) if agree else []
    shown = reports[0].trials if reports else by_rules
    held = hold_together(shown)
    if as_json:
        print_json(_document(shown, held, reports, agreements))
    else:
        _print(shown, held, reports, agreements)
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
        raise InputError("no trial is meant: the filters let none through")
    if len(trials) == 1 and trials[0].problem:
        raise InputError(f"{trials[0].trial.name}: {trials[0].problem}")


def _print(
    trials: Sequence[LabelledTrial],
    held: Held,
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
    held: Held,
    reports: Sequence[JudgeReport],
    agreements: Sequence[dict[str, Any]],
) -> object:
    by = {"kind": "judge", **_named(reports[0])} if reports else {"kind": "rules"}
    return msgspec.to_builtins(
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


def _named(report: JudgeReport) -> dict[str, Any]:
    return {key: report.facts[key] for key in ("model", "answered_by", "prompt_version")}
