"""Sealed trials to a directory that can be laid into the store of Every Eval Ever."""

from datetime import datetime
from pathlib import Path

import msgspec

from proctor.contained import create_below
from proctor.digest import sha256_file
from proctor.exporters.chosen import Chosen, Exported
from proctor.exporters.eee.back import find_row_losses
from proctor.exporters.eee.groups import Group, Key, Source, key_of, make_aggregate
from proctor.exporters.eee.messages import make_messages
from proctor.exporters.eee.rows import make_row
from proctor.exporters.placing import new_directory
from proctor.exporters.report import NAME, Report
from proctor.exporters.trials import (
    SealedTrial,
    read_traces,
    read_trials,
    say_withheld,
    withheld_of,
    writable,
)


def export_trials(chosen: Chosen, target: Path) -> Exported:
    """Write aggregates and rows below a new directory.

    Raises:
        InputError: no trial has a score.
        LedgerError: something is at that path, or it cannot be written.
        DamageError: the ledger does not hold what it should.
    """
    withheld = withheld_of(chosen.ledger)
    source = _find_source(chosen)
    groups: dict[Key, Group] = {}
    with new_directory(target) as place, (place / NAME).open("xb") as file:
        report = Report(file)
        for trial in read_trials(chosen, report):
            say_withheld(trial, withheld, report)
            if trial.row.status == "superseded":
                report.leave_out(f"{trial.name}: superseded; another trial counts in its place")
                continue
            key = key_of(trial)
            group = groups.setdefault(key, Group(key, source))
            with writable(trial, report):
                _add_trial(trial, group, place, report)
        for group in groups.values():
            _write_aggregate(group, place)
    return report.exported(target, target / NAME)


def _find_source(chosen: Chosen) -> Source:
    checkpoint = chosen.ledger.checkpoint()
    newest = max(row.seq for row in chosen.rows)
    ((at,),) = chosen.ledger.index.select("SELECT at FROM entries WHERE seq = ?", (newest,))
    tree = checkpoint.tree
    taken = int(datetime.fromisoformat(at).timestamp())
    return Source(checkpoint.origin, tree.root.hex(), tree.size, str(taken))


def _add_trial(trial: SealedTrial, group: Group, place: Path, report: Report) -> None:
    reward = trial.record.evaluation.reward
    if reward is None:
        group.not_scored += 1
        why = trial.entry.reason_code or "no reason is known"
        report.leave_out(f"{trial.name}: not scored ({why}), and a row must have a score")
        return
    told, traces = trial.told(), read_traces(trial)
    messages = make_messages(traces)
    line = msgspec.json.encode(make_row(trial, told, reward, messages) | group.links)
    report.lose(trial.name, find_row_losses(line, told, traces, messages))
    path = place / group.folder / f"{group.uuid}_samples.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(line + b"\n")
    group.rewards.append(reward)
    group.latest = max(group.latest, trial.row.timestamp or "")
    report.trials += 1


def _write_aggregate(group: Group, place: Path) -> None:
    """Write what a group amounts to; one without any score has no mean, and so no aggregate."""
    if not group.rewards:
        return
    folder = place / group.folder
    checksum = sha256_file(folder / f"{group.uuid}_samples.jsonl")
    data = msgspec.json.encode(make_aggregate(group, checksum))
    with create_below(place, f"{group.folder}/{group.uuid}.json") as file:
        file.write(msgspec.json.format(data, indent=2) + b"\n")
