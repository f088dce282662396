"""`--judge`: models that label turns, and their agreement with the rules."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

import click

from proctor.cli.ledger.progress import reading_progress
from proctor.cli.options import check_companions
from proctor.cli.trace.labels import LabelledTrial, Part
from proctor.errors import AgentError, InputError
from proctor.traces.judge import PROMPT_VERSION, LabelCache, ShownTurn, show_turns
from proctor.traces.label_rules import RULES_VERSION
from proctor.traces.labels import compare_labels
from proctor.traces.trace import TraceReading
from proctor.traces.traced_trial import TracedTrial, opened_traces

KEY_VARIABLE: Final = "OPENAI_API_KEY"
RULES: Final = f"rules {RULES_VERSION}"
# Option names in errors of the chat agent, and their names here.
_WORDS: Final = (("base_url", "--judge-url"), ("-m names it", "--judge names it"))

judge_options: Final = (
    click.option(
        "--judge",
        "judges",
        multiple=True,
        metavar="MODEL",
        help="Ask this model for labels too; can be repeated.",
    ),
    click.option(
        "--judge-url",
        "urls",
        multiple=True,
        metavar="URL",
        help="OpenAI-compatible endpoint of the judge, such as https://…/v1: one for all "
        "judges, or one each.",
    ),
    click.option(
        "--judge-key-env",
        "keys",
        multiple=True,
        metavar="NAME",
        help=f"Environment variable with the judge's API key.  [default: {KEY_VARIABLE}]",
    ),
    click.option(
        "-n",
        "parallel",
        type=click.IntRange(1, 64),
        default=4,
        show_default=True,
        help="Number of concurrent requests to a judge.",
    ),
    click.option("--agree", is_flag=True, help="Show how far the rules and the judges agree."),
)


@dataclass(frozen=True, slots=True)
class JudgeChoice:
    """A judge as chosen by options."""

    model: str
    url: str
    key_variable: str
    parallel: int


def parse_judges(
    judges: Sequence[str], urls: Sequence[str], keys: Sequence[str], parallel: int
) -> list[JudgeChoice]:
    """Parse the options for judges.

    Raises:
        UsageError: a judge has no endpoint, or options are given that mean nothing.
    """
    check_companions(dict.fromkeys(("urls", "keys", "parallel", "agree"), "judges"))
    if judges and not urls:
        raise click.UsageError("--judge needs --judge-url: no endpoint given")
    for option, given in (("--judge-url", urls), ("--judge-key-env", keys)):
        if len(given) > 1 and len(given) != len(judges):
            raise click.UsageError(
                f"{option} is given {len(given)} times for {len(judges)} judges; "
                "expected one for all, or one for each"
            )
    if len(set(zip(judges, itertools.cycle(urls or [""]), strict=False))) < len(judges):
        raise click.UsageError("--judge names the same model at the same endpoint twice")
    return [
        JudgeChoice(model, _pick(urls, at), _pick(keys or [KEY_VARIABLE], at), parallel)
        for at, model in enumerate(judges)
    ]


def _pick(given: Sequence[str], at: int) -> str:
    return given[at] if len(given) > 1 else given[0]


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """The labels of a judge for all trials, and its cost."""

    name: str
    trials: list[LabelledTrial]
    facts: dict[str, Any]

    @property
    def n_unlabelled(self) -> int:
        """Turns without a label."""
        return sum(len(trial.unlabelled) for trial in self.trials)


def ask_judge(choice: JudgeChoice, trials: Sequence[LabelledTrial]) -> JudgeReport:
    """Let a model label every turn of trials.

    Raises:
        InputError: the endpoint cannot be asked, or gave no label at all.
    """
    judging = import_module("proctor.agents.chat.judging")
    cache = LabelCache(
        import_module("proctor.environments.sandbox.scratch").cache_directory(os.environ)
    )
    options = judging.JudgeOptions(
        model=choice.model, address=_find_address(choice), parallel=choice.parallel
    )
    parts = [(trial, part) for trial in trials for part in trial.parts]
    progress = reading_progress(f"judge {choice.model}")
    try:
        results = judging.run_judge(
            options, cache, _show_parts(trials), lambda done: progress(done, len(parts))
        )
    except InputError as error:
        raise InputError(_in_our_words(str(error), choice)) from error
    judged = zip(parts, results.traces, strict=True)
    by_trial: dict[str, list[tuple[Part, Any]]] = {}
    for (trial, part), result in judged:
        by_trial.setdefault(trial.trial.name, []).append((part, result))
    labelled = [_relabel(trial, by_trial.get(trial.trial.name, []), choice) for trial in trials]
    return JudgeReport(f"judge {choice.model}", labelled, _describe(choice, results))


def _show_parts(trials: Sequence[LabelledTrial]) -> Iterator[list[ShownTurn]]:
    """The turns of each trace as shown to a judge; one trace is read at a time."""
    for trial in trials:
        for part in trial.parts:
            yield _show_part(trial.trial, part.name)


def _show_part(trial: TracedTrial, name: str) -> list[ShownTurn]:
    with opened_traces(trial) as traces:
        found = [trace for trace in traces if trace.part == name]
        readings = [TraceReading(trace.path, trace.kind) for trace in found]
        batches = (entries for reading in readings for entries in reading.batches())
        return show_turns(itertools.chain.from_iterable(batches))


def _relabel(
    trial: LabelledTrial, judged: Sequence[tuple[Part, Any]], choice: JudgeChoice
) -> LabelledTrial:
    return replace(
        trial,
        parts=tuple(replace(part, labels=result.labels) for part, result in judged),
        unlabelled={
            (part.name, step): _in_our_words(why, choice)
            for part, result in judged
            for step, why in result.unlabelled.items()
        },
    )


def _find_address(choice: JudgeChoice) -> Any:
    settings = import_module("proctor.agents.chat.settings")
    key = os.environ.get(choice.key_variable, "")
    if choice.key_variable != KEY_VARIABLE and not key:
        raise InputError(
            f"{choice.key_variable} is not set; --judge-key-env names the key's variable"
        )
    try:
        wanted = settings.ChatSettings(base_url=choice.url)
        return settings.find_address(wanted, {settings.KEY_VARIABLE: key}, {})
    except (AgentError, ValueError) as error:
        raise InputError(_in_our_words(str(error), choice)) from error


def _in_our_words(sentence: str, choice: JudgeChoice) -> str:
    for theirs, ours in (*_WORDS, (KEY_VARIABLE, choice.key_variable)):
        sentence = sentence.replace(theirs, ours)
    return sentence


# Costs


def _describe(choice: JudgeChoice, results: Any) -> dict[str, Any]:
    asked = {each.id: each for trace in results.traces for each in trace.asked}
    notes = dict.fromkeys(note for trace in results.traces for note in trace.notes)
    account = results.account
    n_known = sum(trace.known for trace in results.traces)
    n_labels = sum(len(trace.labels) for trace in results.traces)
    n_without = sum(len(trace.unlabelled) for trace in results.traces)
    # Without calls the cost is 0; without answers it is unknown.
    nothing = 0.0 if n_known == n_labels and not n_without else None
    return {
        "model": choice.model,
        "answered_by": sorted({each.model for each in asked.values() if each.model}),
        "prompt_version": PROMPT_VERSION,
        "turns": n_labels,
        "known_from_before": n_known,
        "unlabelled": n_without,
        "requests": len(account.charges),
        "retries": account.n_retries,
        "tokens_in": _total([each.tokens_in for each in asked.values()]),
        "tokens_out": _total([each.tokens_out for each in asked.values()]),
        "cost_usd": _total([each.amount_usd for each in asked.values()]),
        "cost_usd_now": account.basis.amount_usd if account.charges else nothing,
        "why_cost_unknown": account.basis.why_unknown if account.charges else None,
        "refusal": results.refusal and _in_our_words(results.refusal, choice),
        "notes": list(notes),
    }


def _total(amounts: Sequence[float | None]) -> float | None:
    """A sum; None if a part is unknown, or there is nothing."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def compute_agreements(
    by_rules: Sequence[LabelledTrial], reports: Sequence[JudgeReport]
) -> list[dict[str, Any]]:
    """The agreement of each pair of rules and judges, over turns that both labelled."""
    voices = [(RULES, _labels_of(by_rules))]
    voices += [(report.name, _labels_of(report.trials)) for report in reports]
    return [
        {"first": one, "second": other, "agreement": _compare(mine, theirs)}
        for (one, mine), (other, theirs) in itertools.combinations(voices, 2)
    ]


type _Labels = Mapping[tuple[str, str, int], str]


def _labels_of(trials: Sequence[LabelledTrial]) -> _Labels:
    return {
        (trial.trial.name, part.name, label.step): label.label
        for trial in trials
        for part in trial.parts
        for label in part.labels
    }


def _compare(mine: _Labels, theirs: _Labels) -> Any:
    both = [key for key in mine if key in theirs]
    return compare_labels([mine[key] for key in both], [theirs[key] for key in both])
