"""`proctor ledger withhold`: withholds the bytes of a trial."""

import getpass

import click

from proctor.cli.ledger.options import key_option, own_ledger_option
from proctor.cli.ledger.target import open_signed
from proctor.cli.options import check_apart
from proctor.cli.output import json_option, print_json, print_line
from proctor.ledger.query import find_trial
from proctor.ledger.withhold import Why, Withholding, withhold_evidence, withhold_trial
from proctor.sentence import count_of

_MOST_NAMED = 3
_SHOWN = 16


@click.command("withhold")
@click.argument("trial")
@click.option(
    "--reason", required=True, metavar="TEXT", help="Reason, which is sealed into the ledger."
)
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
@own_ledger_option
@key_option
@json_option
def command(
    trial: str,
    reason: str,
    author: str | None,
    evidence_only: bool,
    paths: tuple[str, ...],
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Remove the bytes of a trial but keep their digests.

    Use this for a leaked key, or 300 GB of unneeded evidence. First an entry is sealed that states
    what is removed, why and by whom; then the bytes are deleted. All proofs stay valid, and
    `verify` counts what is withheld. Evidence that another trial names too stays until that trial
    is withheld as well. After a crash, run the same command again.

    Example: proctor ledger withhold fix-bug__a1B2c3D --reason "an API key in the trace"
    """
    check_apart("evidence_only", "paths")
    why = Why(reason, author or getpass.getuser())
    with open_signed(directory, key_file) as ledger:
        row = find_trial(ledger, trial)
        if paths or evidence_only:
            done = withhold_evidence(ledger, row, why, paths)
        else:
            done = withhold_trial(ledger, row, why)
    _print_withheld(row.name, done, as_json=as_json)
    return 0


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
