"""Seals the trials that an import found, and prints a reconciliation that adds up."""

import os
import shlex
from collections import Counter
from collections.abc import Sequence

import msgspec

from proctor.audit.job import Audit, render_verdict
from proctor.cli.ledger.progress import make_progress
from proctor.cli.ledger.target import open_target
from proctor.cli.output import print_json, print_line
from proctor.exchange.intake import Offer, Reconciliation, seal_offers
from proctor.ledger.belonging import Admission
from proctor.ledger.sealing import Sealed, Secrets
from proctor.sentence import count_of

_SOME_REFUSED = 3
_NONE_TAKEN = 2
_MOST_NAMED = 20


def bring_in(
    offers: Sequence[Offer],
    directory: str | None,
    key_file: str | None,
    *,
    noun: str = "trial",
    secrets: Secrets | None = None,
    admission: Admission | None = None,
) -> Reconciliation:
    """Seal what was found, with a progress bar if it takes longer than a second."""
    progress = make_progress()
    total = len(offers)
    return seal_offers(
        offers,
        lambda: open_target(directory, key_file),
        secrets,
        watch=lambda done: progress(f"{noun}s", done, total),
        admission=admission,
    )


def print_reconciliation(
    outcome: Reconciliation,
    *,
    noun: str,
    as_json: bool,
    ledger: str | None = None,
    audits: Sequence[Audit] = (),
) -> int:
    """Print the result and the next command; returns the exit code.

    `ledger` is the value of --ledger, which the next command needs as well. `audits` are those of
    the jobs that were imported.
    """
    if as_json:
        document = describe_reconciliation(outcome)
        print_json(
            document | {"audits": list(map(_describe_audit, audits))} if audits else document
        )
    else:
        _print(outcome, noun, audits)
        if (following := render_next(outcome, ledger)) is not None:
            print_line(f"next: {following}")
    return exit_code_of(outcome)


def exit_code_of(outcome: Reconciliation) -> int:
    """0 if everything is sealed, 3 if only some, 2 if nothing."""
    if not outcome.refused and not outcome.later:
        return 0
    return _SOME_REFUSED if outcome.new or outcome.known else _NONE_TAKEN


def _print(outcome: Reconciliation, noun: str, audits: Sequence[Audit]) -> None:
    summary = (
        f"{count_of(outcome.found, noun)} found: {len(outcome.new):,} imported, "
        f"{len(outcome.known):,} already there, {len(outcome.refused):,} refused"
    )
    summary += f", {len(outcome.later):,} left for later" if outcome.later else ""
    print_line(f"{summary}; {_summarize_audits(audits)}" if audits else summary)
    for audit in audits:
        if not audit.follows:
            first = (audit.causes or audit.unshown)[0]
            command = shlex.join(["proctor", "audit", audit.job.directory])
            print_line(f"{first.kind}: {first.path}: {first.message}; `{command}` shows all")
    _print_all("refused", [(each.where, each.message) for each in outcome.refused], noun)
    _print_all("left for later", [(each.where, each.message) for each in outcome.later], noun)
    for note in outcome.notes:
        print_line(f"note: {note}")


def _summarize_audits(audits: Sequence[Audit]) -> str:
    if len(audits) == 1:
        return f"audited: {render_verdict(audits[0])}"
    n = sum(audit.follows for audit in audits)
    return f"audited: the published numbers of {n:,} of {len(audits):,} jobs follow"


def _describe_audit(audit: Audit) -> dict[str, object]:
    return {
        "directory": audit.job.directory,
        "verdict": str(audit.verdict),
        "differences": len(audit.differences),
        "causes": [finding.message for finding in audit.causes],
    }


def render_next(outcome: Reconciliation, ledger: str | None) -> str | None:
    """The command that summarizes what was imported; None if nothing was."""
    experiments = {each.experiment_id for each in (*outcome.new, *outcome.known)}
    if not experiments:
        return None
    words = ["proctor", "trace", "summary"]
    if len(experiments) == 1:
        (name,) = experiments
        # A path takes precedence over a name, and the import often comes from a directory of that
        # name.
        words += ["--experiment", name] if os.path.lexists(name) else [name]
    words += ["--ledger", ledger] if ledger is not None else []
    return shlex.join(words)


def _print_all(what: str, summary: Sequence[tuple[str, str]], noun: str) -> None:
    """Print each with its reason; if there are many, every reason once."""
    if len(summary) <= _MOST_NAMED:
        for _, message in summary:
            print_line(f"{what}: {message}")
        return
    examples = {message.replace(where, "…"): message for where, message in reversed(summary)}
    counts = Counter(message.replace(where, "…") for where, message in summary)
    for reason, count in counts.most_common(_MOST_NAMED):
        many = f"{count_of(count, noun)}, such as " if count > 1 else ""
        print_line(f"{what}: {many}{examples[reason]}")
    if len(counts) > _MOST_NAMED:
        rest = sum(counts.values()) - sum(count for _, count in counts.most_common(_MOST_NAMED))
        print_line(f"{what}: {rest:,} more; --json has all")


def describe_reconciliation(outcome: Reconciliation) -> dict[str, object]:
    """The result as JSON."""
    return {
        "found": outcome.found,
        "imported": [_describe(each) for each in outcome.new],
        "already_there": [_describe(each) for each in outcome.known],
        "refused": msgspec.to_builtins(outcome.refused),
        "left_for_later": msgspec.to_builtins(outcome.later),
        "notes": outcome.notes,
    }


def _describe(sealed: Sealed) -> dict[str, object]:
    return {
        "experiment_id": sealed.experiment_id,
        "trial_id": sealed.trial_id,
        "record": sealed.record,
        "status": sealed.status,
        "entry": sealed.seq,
    }
