"""Forgeries that reach into the ledger: edits and cuts, and what its owner can seal anew."""

from proctor.ledger.query import find_trial
from tests.audit.directories import Document, edit_json
from tests.forged.directory_forgeries import (
    drop_attempts_and_plan,
    edit_reward_everywhere,
    relabel_model,
)
from tests.forged.forger import edit_lines, opened_by_owner, remove_trials, seal_anew
from tests.forged.honest import NAME, HandedIn, keep_checkpoint


def edit_entry(handed: HandedIn) -> None:
    edit_lines(
        handed.ledger,
        lambda lines: [line.replace(b'"reward":0.0', b'"reward":1.0') for line in lines],
    )


def cut_ledger(handed: HandedIn) -> None:
    remove_trials(handed, handed.trials("proof")[:1])
    edit_lines(handed.ledger, lambda lines: lines[:-1])


def withhold_failure(handed: HandedIn) -> None:
    trial = handed.trials("proof")[0]
    with opened_by_owner(handed) as ledger:
        row = find_trial(ledger, f"{NAME}/{trial.name}")
        ledger.withhold(row, reason="a key was in it", author="me")
    remove_trials(handed, [trial])


def forge_and_seal_anew(handed: HandedIn) -> None:
    edit_reward_everywhere(handed)
    seal_anew(handed)


def forge_and_seal_by_another_key(handed: HandedIn) -> None:
    edit_reward_everywhere(handed)
    seal_anew(handed, keys=handed.place / "other-keys")


def drop_and_seal_anew(handed: HandedIn) -> None:
    drop_attempts_and_plan(handed)
    seal_anew(handed)


def forge_before_sealing(handed: HandedIn) -> None:
    edit_reward_everywhere(handed)
    seal_anew(handed)
    keep_checkpoint(handed)


def pass_off_as_own(handed: HandedIn) -> None:
    """Trials that another runner ran, with records that say proctor did."""

    def change(record: Document) -> None:
        record["environment"]["tool_versions"] = {"proctor": "0.1.0", "kernel": "6.1.0"}
        record["timing"]["total_seconds"] = 1.0

    for trial in handed.job.glob("*__*"):
        edit_json(trial / "record.json", change)
    seal_anew(handed)
    keep_checkpoint(handed)


def type_it_in(handed: HandedIn) -> None:
    """A person's commands under a model's name, relabelled before anything was sealed."""
    relabel_model(handed)
    seal_anew(handed)
    keep_checkpoint(handed)


def hand_in_the_better_run(handed: HandedIn) -> None:
    """The job was run twice, and this is the better one; nothing tells of the other."""
