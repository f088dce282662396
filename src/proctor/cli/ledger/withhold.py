"""`proctor ledger withhold`: withholds bytes of the log, and restores them."""

import getpass
from pathlib import Path

import click

from proctor.cli.ledger.options import key_option, own_ledger_option
from proctor.cli.ledger.target import open_signed
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option, print_json, print_line
from proctor.ledger.query import resolve_name
from proctor.ledger.reader import LedgerWriter
from proctor.ledger.restore import Restored, restore
from proctor.ledger.row import TrialRow
from proctor.ledger.withhold import (
    Why,
    Withholding,
    withhold_entry,
    withhold_evidence,
    withhold_trial,
)
from proctor.sentence import count_of

_MOST_NAMED = 3
_SHOWN = 16


@click.command("withhold")
@click.argument("trial")
@click.option("--reason", metavar="TEXT", help="Reason, which is sealed into the ledger.")
@click.option(
    "--author", metavar="NAME", help="Author of the withholding.  [default: your login name]"
)
@click.option("--evidence-only", is_flag=True, help="Remove all evidence, but keep the record.")
@click.option(
    "--evidence",
    "paths",
    multiple=True,
    metavar="PATH",
    help="Remove only this file of the evidence; can be repeated.",
)
@click.option(
    "--restore", "source", type=PATH, help="Restore the bytes from this file or directory."
)
@own_ledger_option
@key_option
@json_option
def command(
    trial: str,
    reason: str | None,
    author: str | None,
    evidence_only: bool,
    paths: tuple[str, ...],
    source: str | None,
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Remove bytes but keep their digests, or restore them.

    Use this for a leaked key, or 300 GB of unneeded evidence. First an entry is sealed that states
    what is removed, why and by whom; then the bytes are deleted. All proofs stay valid, and
    `verify` counts what is withheld. Evidence that another trial names too stays until that trial
    is withheld as well. After a crash, run the same command again. To withhold an entry that is not
    a trial, give its number.

    With --restore, a file, a directory or another copy of the ledger is searched, and everything
    with exactly the same hashes is restored.

    Example: proctor ledger withhold fix-bug__a1B2c3D --reason "an API key in the trace"
    """
    _check_options(reason, source)
    why = Why(reason or "", author or getpass.getuser())
    with open_signed(directory, key_file) as ledger:
        found = resolve_name(ledger, trial)
        if source is not None:
            seq = found if isinstance(found, int) else found.seq
            _print_restored(_name(found), restore(ledger, seq, Path(source)), as_json=as_json)
            return 0
        done = _withhold(ledger, found, why, paths if paths or evidence_only else None)
    _print_withheld(_name(found), done, as_json=as_json)
    return 0


def _check_options(reason: str | None, source: str | None) -> None:
    for name in ("reason", "author", "evidence_only", "paths"):
        check_apart("source", name)
    check_apart("evidence_only", "paths")
    if source is None and reason is None:
        raise click.UsageError("--reason is missing: say why the bytes are removed")


def _withhold(
    ledger: LedgerWriter, found: TrialRow | int, why: Why, paths: tuple[str, ...] | None
) -> Withholding:
    if isinstance(found, int):
        if paths is not None:
            raise click.UsageError(f"entry {found} is not a trial; it has no evidence")
        return withhold_entry(ledger, found, why)
    if paths is not None:
        return withhold_evidence(ledger, found, why, paths)
    return withhold_trial(ledger, found, why)


def _name(found: TrialRow | int) -> str:
    if isinstance(found, int):
        return f"entry {found}"
    return found.name


def _print_withheld(name: str, done: Withholding, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "name": name,
                "seq": done.seq,
                "is_new": done.is_new,
                "line": done.line,
                "removed": done.removed,
                "kept": done.kept,
            }
        )
        return
    repeated = "" if done.is_new else ", which existed already"
    what = "its evidence is" if done.line is None else "its bytes are"
    print_line(f"{name}: {what} withheld by entry {done.seq}{repeated}")
    if done.removed:
        print_line(f"  {count_of(len(done.removed), 'artifact')} removed")
    for digest, others in done.kept.items():
        more = ", …" if len(others) > _MOST_NAMED else ""
        named = ", ".join(others[:_MOST_NAMED])
        print_line(f"  {digest[:_SHOWN]}… kept: also evidence of {named}{more}")


def _print_restored(name: str, restored: Restored, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "name": name,
                "line": restored.line,
                "artifacts": restored.artifacts,
                "missing": restored.missing,
            }
        )
        return
    line = "its entry" if restored.line is not None else ""
    artifacts = count_of(len(restored.artifacts), "artifact") if restored.artifacts else ""
    print_line(f"{name}: {' and '.join(filter(None, (line, artifacts)))} restored")
    for digest in restored.missing:
        print_line(f"  still withheld: {digest}")
