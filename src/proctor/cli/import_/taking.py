"""What every import ends with: trials sealed under a bar, and a reconciliation that adds up."""

from collections.abc import Sequence

from proctor.cli.ledger.progress import make_progress
from proctor.cli.ledger.target import open_target
from proctor.cli.output import print_json, print_line
from proctor.importers.intake import Offer, Reconciliation, Refused, take_in
from proctor.ledger.sealing import Sealed
from proctor.sentence import count_of

_SOME_REFUSED = 3
_NONE_TAKEN = 2
_MOST_NAMED = 20


def bring_in(
    offers: Sequence[Offer], directory: str | None, key_file: str | None, *, noun: str = "trial"
) -> Reconciliation:
    """Seal what was found, with a bar on anything longer than a second.

    Raises:
        LedgerError: the ledger cannot be opened or written; what was sealed so far stays.
    """
    progress = make_progress()
    total = len(offers)
    return take_in(
        offers,
        lambda: open_target(directory, key_file),
        watch=lambda done: progress(f"{noun}s", done, total),
    )


def print_reconciliation(outcome: Reconciliation, *, noun: str, as_json: bool) -> int:
    """Say what became of everything, and give the exit code for it."""
    if as_json:
        print_json(describe_reconciliation(outcome))
    else:
        new, known, refused = len(outcome.new), len(outcome.known), len(outcome.refused)
        print_line(
            f"{count_of(outcome.found, noun)} found: {new:,} imported, "
            f"{known:,} already there, {refused:,} refused"
        )
        for each in outcome.refused[:_MOST_NAMED]:
            print_line(f"refused: {each.message}")
        if refused > _MOST_NAMED:
            print_line(f"refused: {refused - _MOST_NAMED:,} more; --json has all")
    return find_exit_code(outcome)


def find_exit_code(outcome: Reconciliation) -> int:
    """0 where nothing was refused, 3 where some was, 2 where all was."""
    if not outcome.refused:
        return 0
    return _SOME_REFUSED if outcome.new or outcome.known else _NONE_TAKEN


def describe_reconciliation(outcome: Reconciliation) -> dict[str, object]:
    """The same as a document."""
    return {
        "found": outcome.found,
        "imported": [_describe(each) for each in outcome.new],
        "already_there": [_describe(each) for each in outcome.known],
        "refused": [_describe_refused(each) for each in outcome.refused],
    }


def _describe(sealed: Sealed) -> dict[str, object]:
    return {
        "experiment_id": sealed.experiment_id,
        "trial_id": sealed.trial_id,
        "record": sealed.record,
        "status": sealed.status,
        "entry": sealed.seq,
    }


def _describe_refused(refused: Refused) -> dict[str, object]:
    return {
        "where": refused.where,
        "message": refused.message,
        "is_conflict": refused.is_conflict,
    }
