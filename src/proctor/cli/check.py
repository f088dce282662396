"""`proctor check`: checks a single file or ledger."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import click
import msgspec

from proctor.audit.checks.checked import Checked
from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.cli.options import PATH, check_companions, check_unused, sample_option
from proctor.cli.output import json_option, print_json, print_line
from proctor.errors import InputError
from proctor.sentence import count_of
from proctor.traces.parallel import map_paths

# Module and function for each kind; imported on use, because some are slow to import.
_CHECKS = {
    FileKind.TRAJECTORY: "audit.checks.traces.check_trajectory_file",
    FileKind.OUTPUT: "audit.checks.traces.check_trajectory_file",
    FileKind.CONVERSATION: "audit.checks.traces.check_conversation_file",
    FileKind.ATIF: "audit.checks.traces.check_atif_file",
    FileKind.RECORD: "audit.checks.records.check_record_file",
    FileKind.CERTIFICATE: "audit.checks.scores.check_certificate_file",
    FileKind.LEDGER: "ledger.verification.whole.check_ledger_directory",
    FileKind.CHECKPOINT: "ledger.claims.checks.check_checkpoint_file",
    FileKind.PROOF: "ledger.claims.checks.check_proof_file",
    FileKind.CLAIM: "ledger.claims.checks.check_claim_file",
    FileKind.BUNDLE: "ledger.claims.checks.check_bundle_file",
}
_SIGNED = frozenset(
    {
        FileKind.LEDGER,
        FileKind.CHECKPOINT,
        FileKind.PROOF,
        FileKind.CLAIM,
        FileKind.BUNDLE,
    }
)


@dataclass(frozen=True, slots=True)
class _CheckOptions:
    """Options for all checked things."""

    evidence: tuple[str, ...]
    keys: tuple[str, ...]
    """Public keys, as they were given."""


@click.command("check")
@click.argument("things", nargs=-1, required=True, type=PATH)
@click.option(
    "--policy",
    type=PATH,
    metavar="FILE|NAME",
    help="Check jobs and experiments against this policy: a TOML file, terminal-bench-2-1 "
    "or leaderboard.",
)
@click.option(
    "--ledger",
    "directory",
    type=PATH,
    help="With --policy: look up experiments in this ledger, and compare jobs with it.",
)
@sample_option
@click.option(
    "--since",
    multiple=True,
    type=PATH,
    metavar="CHECKPOINT",
    help="With --policy: require that the ledger extends this older checkpoint.",
)
@click.option(
    "--evidence",
    multiple=True,
    type=PATH,
    help="Directory with the files that a record names; can be repeated.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PUB",
    help="Require that this public key signed the ledger, checkpoint, proof or claim."
    " Takes a file or the key itself, as `proctor ledger key` prints it; can be repeated.",
)
@json_option
def command(
    things: tuple[str, ...],
    policy: str | None,
    directory: str | None,
    since: tuple[str, ...],
    evidence: tuple[str, ...],
    keys: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check a trace, record, ledger, proof or claim on its own.

    The type of a THING is detected from its content. A trace is read to its last line, and
    every problem is reported with its line. A record is checked against its format and against
    what `complete` promises. A certificate is recomputed from its operands. A proof and a claim
    are followed to the root of the checkpoint they contain, without the ledger; --key names the
    trusted signers, and without it no signature is trusted. To check whether a job's numbers
    follow from its evidence, use `proctor audit`.

    With --policy, a job, a directory of jobs or an experiment in the ledger is one submission:
    tasks, attempts, model, limits, records, traces and evidence are checked against the policy,
    with a reason for every trial that violates it. A directory needs no ledger.

    Exit code 1: a problem was found. 2: something could not be checked; the rest was.

    Example: proctor check trial/agent/trajectory.json record.json

    Example: proctor check jobs/nightly --policy terminal-bench-2-1
    """
    check_companions({"directory": "policy", "since": "policy"})
    if policy is not None:
        if files := [thing for thing in things if Path(thing).is_file()]:
            raise click.UsageError(f"--policy takes jobs and experiments; {files[0]} is a file")
        check_unused("a policy of jobs", evidence=evidence)
        # Imported late: policy checks are slow to import.
        checker = import_module("proctor.cli.check_policy")
        asked = checker.PolicyOptions(policy, directory, since, keys)
        answer: int = checker.check_submissions(things, asked, as_json=as_json)
        return answer
    options = _CheckOptions(evidence, keys)
    ask = partial(_check_path, options=options)
    answers = list(map_paths(ask, things))
    checked = [found for found in answers if isinstance(found, Checked)]
    refused = [found for found in answers if isinstance(found, str)]
    if not refused:
        _check_used({found.thing for found in checked}, options)
    return print_checked(checked, refused, as_json=as_json)


def print_checked(checked: Sequence[Checked], refused: Sequence[str], *, as_json: bool) -> int:
    """Print what was checked; returns the exit code.

    Raises:
        InputError: something could not be checked; the rest was.
    """
    is_sound = all(found.is_sound for found in checked) and not refused
    if as_json and checked:
        documents = [_document(found) for found in checked]
        print_json({"sound": is_sound, "checked": documents, "refused": list(refused)})
    elif not as_json:
        for found in checked:
            _print(found)
    if refused:
        raise InputError("\nproctor: ".join(refused))
    return 0 if is_sound else 1


def _check_path(path: str, options: _CheckOptions) -> Checked | str:
    """Check one thing; returns a message if it cannot be checked at all."""
    try:
        return _check(path, options)
    except InputError as error:
        return str(error)


def _check(path: str, options: _CheckOptions) -> Checked:
    thing = find_file_kind(path)
    if thing not in _CHECKS:
        raise InputError(f"{path}: a {thing}; {_find_other_way(path, thing)}")
    module, _, function = _CHECKS[thing].rpartition(".")
    check: Callable[..., Checked] = getattr(import_module(f"proctor.{module}"), function)
    if thing in _SIGNED:
        return check(path, options.keys)
    match thing:
        case FileKind.RECORD:
            return check(path, options.evidence)
    return check(path)


def _find_other_way(path: str, thing: FileKind) -> str:
    """How to check what cannot be checked alone, or is checked by another command."""
    if thing in (FileKind.TASK, FileKind.DATASET):
        return f"`proctor task lint {path}` checks it"
    audit = "`proctor audit` checks a job with its trials"
    record = Path(path, "record.json")
    if not record.is_file():
        return audit
    return f"{audit}, `proctor check {record} --evidence {path}` the trial's record"


def _check_used(kinds: set[FileKind], options: _CheckOptions) -> None:
    if options.evidence and FileKind.RECORD not in kinds:
        raise click.UsageError("--evidence requires a trial record")
    if options.keys and not kinds & _SIGNED:
        raise click.UsageError("--key requires a ledger, checkpoint, proof or claim")


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
