"""`proctor check`: any thing by itself, as far as it can be judged alone."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import click
import msgspec

from proctor.audit.checks.checked import Checked
from proctor.audit.things import Thing, find_thing
from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line
from proctor.errors import InputError
from proctor.sentence import count_of
from proctor.trajectory.parallel import map_paths

_CHECKS = {
    Thing.TRAJECTORY: "traces.check_trajectory_file",
    Thing.CONVERSATION: "traces.check_conversation_file",
    Thing.ATIF: "traces.check_atif_file",
    Thing.RECORD: "records.check_record_file",
    Thing.CERTIFICATE: "scores.check_certificate_file",
    Thing.SCORE_RECORD: "scores.check_score_record_file",
    Thing.TASK: "tasks.check_task_directory",
    Thing.DATASET: "tasks.check_dataset_directory",
}
"""Module and function of proctor.audit.checks; loaded on use, as some are slow to load."""


@click.command("check")
@click.argument("things", nargs=-1, required=True, type=PATH)
@click.option("--policy", type=PATH, help="Scoring policy of a score record.")
@click.option(
    "--evidence",
    multiple=True,
    type=PATH,
    help="Directory with the files a record names; may be given several times.",
)
@json_option
def command(
    things: tuple[str, ...], policy: str | None, evidence: tuple[str, ...], as_json: bool
) -> int:
    """Check a trace, record, task, dataset or certificate by itself.

    What a THING is, is told by what is in it. A trace is read to its last line and every problem
    is named with its line; a record is held to its format and to what `complete` promises; of a
    dataset, every task that harbor would pass over in silence is named; a certificate and a score
    record are added up again from their operands. A job is for `proctor audit`.

    Exit code 1: a problem was found. 2: something could not be checked; the rest was.

    Example: proctor check trial/agent/trajectory.json record.json
    """
    ask = partial(check_thing, policy=policy, evidence=evidence)
    answers = list(map_paths(ask, things))
    checked = [found for found in answers if isinstance(found, Checked)]
    refused = [found for found in answers if isinstance(found, str)]
    if not refused:
        _check_used({found.thing for found in checked}, policy, evidence)
    is_sound = all(found.is_sound for found in checked) and not refused
    if as_json and checked:
        documents = [_document(found) for found in checked]
        print_json({"sound": is_sound, "checked": documents, "refused": refused})
    elif not as_json:
        for found in checked:
            _print(found)
    if refused:
        raise InputError("\nproctor: ".join(refused))
    return 0 if is_sound else 1


def check_thing(path: str, policy: str | None, evidence: tuple[str, ...]) -> Checked | str:
    """What can be said of one thing; a sentence if it cannot be checked at all."""
    try:
        return _check(path, policy, evidence)
    except InputError as error:
        return str(error)


def _check(path: str, policy: str | None, evidence: tuple[str, ...]) -> Checked:
    thing = find_thing(path)
    if thing not in _CHECKS:
        raise InputError(f"{path}: a {thing}; {_find_other_way(path)}")
    module, function = _CHECKS[thing].split(".")
    check: Callable[..., Checked]
    check = getattr(import_module(f"proctor.audit.checks.{module}"), function)
    match thing:
        case Thing.SCORE_RECORD:
            return check(path, policy)
        case Thing.RECORD:
            return check(path, evidence)
    return check(path)


def _find_other_way(path: str) -> str:
    """How a job or a trial is checked, which is no thing by itself."""
    audit = "`proctor audit` checks a job with its trials"
    record = Path(path, "record.json")
    if not record.is_file():
        return audit
    return f"{audit}, `proctor check {record} --evidence {path}` the trial's record"


def _check_used(kinds: set[Thing], policy: str | None, evidence: tuple[str, ...]) -> None:
    if policy is not None and Thing.SCORE_RECORD not in kinds:
        raise click.UsageError("--policy goes with a score record; none was given")
    if evidence and Thing.RECORD not in kinds:
        raise click.UsageError("--evidence goes with a trial record; none was given")


def _print(found: Checked) -> None:
    verdict = "no problem" if found.is_sound else count_of(found.n_problems, "problem")
    print_line(f"{found.path}: {found.thing}: {found.summary}: {verdict}")
    for each in found.diagnostics:
        print_line(f"  {'' if each.is_problem else 'note: '}{each}")
    for code, count in found.more.items():
        print_line(f"  and {count:,} more like it ({code})")
    for what in found.unchecked:
        print_line(f"  not checked: {what}")


def _document(found: Checked) -> dict[str, object]:
    return {
        "path": found.path,
        "thing": str(found.thing),
        "sound": found.is_sound,
        "summary": found.summary,
        "diagnostics": [msgspec.to_builtins(each) for each in found.diagnostics],
        "more": found.more,
        "unchecked": list(found.unchecked),
    }
