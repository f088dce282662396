"""`proctor case`: writes a sealed trial as a self-checking HTML page."""

from pathlib import Path

import click

from proctor.cli.ledger.options import choose_directory, ledger_option, open_ledger
from proctor.cli.options import PATH, STDOUT
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.digest import sha256_hex
from proctor.errors import InputError
from proctor.ledger.claims.proof import load_checkpoint
from proctor.ledger.query import find_trial
from proctor.ledger.reader import LedgerReader
from proctor.report.case.derivation import judge_reward
from proctor.report.case.making import MadeCase, make_case
from proctor.sentence import count_of, render_size

_MEGABYTE = 1_000_000
_DEFAULT = 20
_MOST = 200


@click.command("case")
@click.argument("trial", type=PATH)
@click.option(
    "-o",
    "--output",
    required=True,
    type=PATH,
    help="Write the page to this file; never overwrite one.",
)
@click.option(
    "--max-size", type=click.IntRange(1, _MOST), default=_DEFAULT, show_default=True, metavar="MB",
    help="Limit the size of the page; evidence beyond it is listed, not embedded.",
)  # fmt: skip
@click.option(
    "--checkpoint", type=PATH, help="Prove against this checkpoint, such as a cosigned copy."
)
@ledger_option
@json_option
def command(
    trial: str,
    output: str,
    max_size: int,
    checkpoint: str | None,
    directory: str | None,
    as_json: bool,
) -> int:
    """Write one sealed trial as an HTML page that verifies itself.

    TRIAL is a trial id, EXPERIMENT/TRIAL, an entry number, or a unique prefix of one. The page
    needs neither a network nor proctor: it contains the record, the evidence, the proof that they
    are in the ledger, the signed checkpoint, and a script that recomputes all of it and reports
    what it checked. `proctor check PAGE` does the same without running anything from the page.

    Example: proctor case nightly/fix-bug__a1B2c3D -o case.html
    """
    if output == STDOUT:
        raise click.UsageError("-o is -; expected a file, because browsers open pages from a disk")
    _check_sealed(trial, directory)
    with open_ledger(directory) as ledger:
        made = _make(ledger, trial, checkpoint, max_size * _MEGABYTE)
        write_new_file(Path(output), made.page, [ledger.where])
    facts = _describe(made, output)
    if as_json:
        print_json(facts)
    else:
        _print(made, output)
    return 0


def _check_sealed(trial: str, directory: str | None) -> None:
    """Refuse the directory of a trial: only sealed trials prove anything."""
    if not trial:
        raise InputError("TRIAL is empty; expected the name of a sealed trial")
    if not Path(trial).is_dir():
        return
    name = Path(trial).resolve().name
    raise InputError(
        f"{trial}: a directory, which anyone could have edited; a case file is made of a sealed "
        f"trial: `proctor ledger seal {trial} --experiment NAME --ledger "
        f"{choose_directory(directory)}` seals it, then `proctor case NAME/{name}`"
    )


def _make(ledger: LedgerReader, trial: str, checkpoint: str | None, largest: int) -> MadeCase:
    newest = ledger.refresh()
    row = find_trial(ledger, trial)
    under = newest if checkpoint is None else load_checkpoint(checkpoint)
    return make_case(ledger, row, under, largest=largest)


def _describe(made: MadeCase, output: str) -> dict[str, object]:
    opened = made.opened
    return {
        "path": output,
        "size": len(made.page),
        "sha256": sha256_hex(made.page),
        "trial": opened.name,
        "seq": opened.case.trial,
        "record_sha256": opened.record,
        "root": opened.checkpoint.tree.root.hex(),
        "entries": opened.checkpoint.tree.size,
        "key": opened.keys[-1].key,
        "script_sha256": opened.case.script,
        "reward_problems": [str(found) for found in judge_reward(opened)],
        "embedded": sum(file.sha256 in opened.files for file in opened.evidence),
        "left_out": [
            {"path": file.path, "sha256": file.sha256, "size": file.size, "why": why}
            for file in opened.evidence
            if (why := opened.left_out.get(file.sha256))
        ],
    }


def _print(made: MadeCase, output: str) -> None:
    opened = made.opened
    embedded = sum(file.sha256 in opened.files for file in opened.evidence)
    print_line(
        f"{output}: {opened.name} with {embedded:,} of {count_of(len(opened.evidence), 'file')} of "
        f"evidence, {render_size(len(made.page))}"
    )
    for file in opened.evidence:
        if why := opened.left_out.get(file.sha256):
            reason = "withheld" if why == "withheld" else "too large; raise --max-size"
            print_line(f"  not in it: {file.path}, {render_size(file.size)} ({reason})")
    for found in judge_reward(opened):
        print_line(f"  `proctor check` will fail it: {found.message}")
    print_line(f"  key  {opened.keys[-1].key}")
    print_line(
        "  Send the key or a checkpoint through another channel, so that the recipient can compare."
    )
