"""`proctor record`: makes a TrialRecord from a harbor trial, and prints its schema."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from proctor.cli.options import PATH, STDOUT
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.cli.redaction import make_redactor, secret_option
from proctor.cli.showing.trial_text import render_reward
from proctor.cli.stdout import send, send_bytes
from proctor.digest import sha256_hex
from proctor.errors import IncompleteRecordError, InputError
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.exchange.trial_sources import MadeRecord
from proctor.record.read import load_adaptation, render_record
from proctor.record.schema import render_schema
from proctor.sentence import count_of, printable, render_money
from proctor.traces.writer import Redactor


@click.group("record")
def command() -> None:
    """Make a trial record, or print the schema of records.

    Example: proctor record make jobs/nightly/fix-bug__a1B2c3D --experiment nightly -o record.json
    """


@command.command("make")
@click.argument("trial", type=PATH)
@click.option("--experiment", required=True, help="Experiment that the record belongs to.")
@click.option(
    "-o", "--output", required=True, type=PATH, help="Write the record to this file; - for stdout."
)
@click.option("--task", type=PATH, help="Directory of the task that the trial ran.")
@click.option("--dataset-id", help="Dataset of the task, as name@version.")
@click.option("--adaptation", type=PATH, help="Read the task's adaptation from this JSON file.")
@click.option("--pins", type=PATH, help="Write what the record is based on to this file.")
@click.option("--complete", "must_complete", is_flag=True, help="Refuse to write a partial record.")
@secret_option
@json_option
def make(
    trial: str,
    experiment: str,
    output: str,
    task: str | None,
    dataset_id: str | None,
    adaptation: str | None,
    pins: str | None,
    must_complete: bool,
    secret_names: tuple[str, ...],
    as_json: bool,
) -> int:
    """Make a TrialRecord from a harbor TRIAL directory.

    Rewards are read and scored as `proctor score` does. Without --task the record is partial, and
    the output says what would make it complete. With --task, every file of the task is pinned by
    its SHA-256; the task's digests must match those that the trial recorded. Nothing is written
    into the trial, and an existing record is never changed.

    Example: proctor record make jobs/nightly/fix-bug__a1B2c3D --experiment nightly -o record.json
    """
    _check_streams(output, pins, as_json=as_json)
    made = make_record(
        RecordRequest(
            trial=trial,
            experiment=experiment,
            task=task,
            dataset_id=dataset_id,
            adaptation=load_adaptation(Path(adaptation)) if adaptation else None,
        ),
        _make_redactor(trial, secret_names),
    )
    if must_complete and made.missing:
        fields = tuple(missing.field for missing in made.missing)
        reasons = "; ".join(f"{each} (requires {each.remedy})" for each in made.missing)
        raise IncompleteRecordError(f"{trial}: not complete: {reasons}", fields)
    data = render_record(made.record)
    if pins is not None:
        _write_both((output, data), (pins, _render_pins(made)), _find_read(trial, task))
    else:
        _write(output, data, _find_read(trial, task))
    if as_json:
        print_json({"path": output, "sha256": sha256_hex(data), **_document(made)})
    else:
        _print(output, sha256_hex(data), made)
    return 0


@command.command("schema")
def schema() -> int:
    """Print the JSON Schema of a record.

    The schema describes what proctor accepts and writes: types, ranges and the meaning of each
    field. Rules between fields, and what `complete` promises, are checked when a record is read.

    Example: proctor record schema > trial-record.schema.json
    """
    send(render_schema().decode().rstrip("\n"))
    return 0


def _make_redactor(trial: str, names: Sequence[str]) -> Redactor | None:
    # The same trial gives the same bytes, so that repeating the command changes nothing.
    salt = bytes.fromhex(sha256_hex(os.fsencode(Path(trial).resolve().name)))[:16]
    return make_redactor(names, salt) if names else None


def _find_read(trial: str, task: str | None) -> list[str]:
    """Directories that must not be written to: the trial, its job, the task."""
    around = Path(trial).resolve().parent
    job = [str(around)] if (around / "lock.json").exists() else []
    return [trial, *job, *([task] if task else [])]


def _check_streams(output: str, pins: str | None, *, as_json: bool) -> None:
    """Refuse to print two documents on stdout."""
    if pins == STDOUT:
        raise click.UsageError("--pins takes a file; --json prints the pins on stdout")
    if as_json and output == STDOUT:
        raise click.UsageError("--json requires -o FILE: stdout holds one or the other")


def _write(output: str, data: bytes, read: Sequence[str]) -> None:
    if output == STDOUT:
        send_bytes(data)
    else:
        write_new_file(Path(output), data, read)


def _write_both(record: tuple[str, bytes], pins: tuple[str, bytes], read: Sequence[str]) -> None:
    """Write the record and its pins, or neither."""
    path = Path(pins[0])
    if record[0] != STDOUT and os.path.realpath(record[0]) == os.path.realpath(path):
        raise InputError(f"{path}: the record is written there; choose another file for the pins")
    was_there = os.path.lexists(path)
    write_new_file(path, pins[1], read)
    try:
        _write(record[0], record[1], read)
    except InputError:
        # Pins without a record would prevent the next attempt from writing its own.
        if not was_there:
            path.unlink()
        raise


def _render_pins(made: MadeRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_document(made)), indent=2)


def _document(made: MadeRecord) -> dict[str, object]:
    """The result as JSON, without the record, which has its own file."""
    record = made.record
    return {
        "trial_id": record.trial_id,
        "experiment_id": record.experiment_id,
        "completeness": record.completeness,
        "missing": msgspec.to_builtins(made.missing),
        "pins": msgspec.to_builtins(made.pins),
        "cost_basis": msgspec.to_builtins(made.cost_basis),
        "evidence": msgspec.to_builtins(made.evidence),
        "redactions": list(made.redactions),
        "notes": list(made.notes),
    }


def _print(path: str, digest: str, made: MadeRecord) -> None:
    """Print the result; on stderr if the record is on stdout."""
    for line in _describe(path, digest, made):
        if path == STDOUT:
            click.echo(printable(line), err=True)
        else:
            print_line(line)


def _describe(path: str, digest: str, made: MadeRecord) -> Iterator[str]:
    record, pins = made.record, made.pins
    basis = "recomputed from --task" if pins.is_task_recomputed else "as the job recorded it"
    cost = made.cost_basis
    amount = (
        cost.why_unknown
        if cost.amount_usd is None
        else f"{render_money(cost.amount_usd)}, {cost.kind}"
    )
    yield f"{path}: {record.completeness} record of {record.trial_id}"
    for label, text in (
        ("sha256", digest),
        ("task", f"{record.task.task_id}, checksum {record.task.task_revision}, {basis}"),
        ("lock digest", pins.task_lock_digest or "not recorded"),
        ("agent", f"{record.agent.adapter} {record.agent.adapter_revision or '(no version)'}"),
        ("model", record.agent.model),
        ("configuration", f"sha256 {pins.configuration_sha256}"),
        ("input files", f"{len(record.inputs.input_files or ())}"),
        ("trace", f"{pins.trace.path} sha256 {pins.trace.sha256}" if pins.trace else "none"),
        ("evidence", count_of(len(made.evidence), "file")),
        ("reward", render_reward(record.evaluation.model_dump())),
        ("cost", f"{amount}"),
    ):
        yield f"  {label:<13}  {text}"
    for each in made.missing:
        yield f"  to be complete: {each}; requires {each.remedy}"
    for hidden in made.redactions:
        yield f"  redacted: {hidden['name']} {count_of(hidden['count'], 'time')}"
    for note in made.notes:
        yield f"  note: {note}"
