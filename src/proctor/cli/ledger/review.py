"""`proctor ledger review`: adds a person's verdict about a trial."""

import click

from proctor.cli.ledger.options import key_option, own_ledger_option
from proctor.cli.ledger.target import open_signed
from proctor.cli.output import json_option, print_json, print_line
from proctor.ledger.entry import ReviewEntry
from proctor.ledger.query import find_trial
from proctor.ledger.review import append_review, list_remarks
from proctor.sentence import count_of


@click.command("review")
@click.argument("trial")
@click.option(
    "--verdict", required=True, type=click.Choice(("pass", "fail", "defer")), help="Your verdict."
)
@click.option("--reviewer", required=True, metavar="NAME", help="Name of the reviewer.")
@click.option("--note", default="", metavar="TEXT", help="Reason for the verdict.")
@own_ledger_option
@key_option
@json_option
def command(
    trial: str,
    verdict: str,
    reviewer: str,
    note: str,
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Record your verdict on a trial, without changing the trial.

    The review is a separate entry that names the digest of the reviewed record. Further reviews are
    appended: lists show the latest, `proctor show TRIAL` shows all.

    Example: proctor ledger review fix-bug__a1B2c3D --verdict pass --reviewer ana --note "read it"
    """
    with open_signed(directory, key_file) as ledger:
        row = find_trial(ledger, trial)
        seq = append_review(ledger, row, verdict, reviewer=reviewer, note=note)
        ledger.refresh()
        remarks = list_remarks(ledger, row.record)
    n = sum(isinstance(remark.entry, ReviewEntry) for remark in remarks)
    if as_json:
        print_json(
            {
                "seq": seq,
                "experiment_id": row.experiment_id,
                "trial_id": row.trial_id,
                "record": row.record,
                "verdict": verdict,
                "reviewer": reviewer,
                "note": note,
                "reviews": n,
            }
        )
    else:
        name = row.name
        print_line(f"{name}: {verdict} by {reviewer}, entry {seq}, {count_of(n, 'review')} in all")
    return 0
