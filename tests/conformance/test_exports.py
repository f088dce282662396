"""What `proctor export` writes is taken by the formats' own readers."""

import base64
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from proctor.exchange.atif import export_trials as export_atif
from proctor.exchange.eee import export_trials as export_eee
from proctor.exchange.exporting import Exporter, Selection
from proctor.exchange.otel import export_trials as export_otel
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from tests.conformance.theirs import harbor_module
from tests.exchange.sealed import (
    ATIF,
    CONVERSATION,
    CONVERSED,
    DATA,
    TRAJECTORY,
    seal_job,
    trajectory,
)
from tests.ledger.trials import open_ledger, seal_files

JOBS = [
    *("06-errors-oracle-k1", "10-multistep-oracle-mounted", "14-two-models"),
    *("16-agent-nonzero", "17-agent-hang"),
]
IDS = ("traceId", "spanId", "parentSpanId")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a ledger with real trials of many kinds, and with every kind of trace, is."""
    directory = tmp_path_factory.mktemp("exports")
    with open_ledger(directory) as ledger:
        for job in JOBS:
            seal_job(ledger, job)
        for path in sorted(CONVERSED.glob("*.jsonl")):
            seal_files(ledger, path.stem, {CONVERSATION: path.read_bytes()})
        seal_files(ledger, "own", {TRAJECTORY: trajectory()})
        seal_files(ledger, "torn", {TRAJECTORY: trajectory()[:-30]})
        steps = {f"steps/{step}/{TRAJECTORY}": trajectory() for step in ("one", "two")}
        seal_files(ledger, "several", steps)
        every = (DATA / "atif" / "every-field.json").read_bytes()
        seal_files(ledger, "every-field", {ATIF: every})
    return directory / "ledger"


def exported(ledger: Path, export_trials: Exporter, target: Path) -> Path:
    with OpenLedger.open(ledger) as opened:
        export_trials(Selection(opened, list_trials(opened), is_all=True), target)
    return target


def test_harbors_validator_takes_every_document(everything: Path, tmp_path: Path) -> None:
    documents = sorted(exported(everything, export_atif, tmp_path / "o").rglob("trajectory.json"))
    assert len(documents) == 30
    validator = harbor_module("harbor.utils.trajectory_validator")
    for path in documents:
        judge = validator.TrajectoryValidator()
        assert judge.validate(path, validate_images=False), (path, judge.get_errors())


def test_the_package_atif_takes_every_document(everything: Path, tmp_path: Path) -> None:
    model = import_module("atif").Trajectory
    for path in exported(everything, export_atif, tmp_path / "o").rglob("trajectory.json"):
        assert model.model_validate_json(path.read_bytes()).steps, path


def spans_in(document: Any) -> Iterator[dict[str, Any]]:
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def in_base64(line: str) -> Any:
    """A line with its ids as protobuf's own JSON has them; OTLP has them as hex."""
    document = json.loads(line)
    for span in spans_in(document):
        for key in span.keys() & set(IDS):
            span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return document


def without_empty(value: Any) -> Any:
    """Lists without items are left out by protobuf."""
    if isinstance(value, dict):
        return {key: without_empty(item) for key, item in value.items() if item != []}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def test_opentelemetrys_own_messages_take_every_line_and_give_it_back(
    everything: Path, tmp_path: Path
) -> None:
    service = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    json_format = import_module("google.protobuf.json_format")
    lines = exported(everything, export_otel, tmp_path / "o").read_text().splitlines()
    assert len(lines) > 40
    for line in lines:
        document = in_base64(line)
        message = json_format.ParseDict(document, service.ExportTraceServiceRequest())
        back = json_format.MessageToDict(message, use_integers_for_enums=True)
        assert back == without_empty(document)
        spans = message.resource_spans[0].scope_spans[0].spans
        assert {len(span.trace_id) for span in spans} == {16}
        assert len({span.span_id for span in spans}) == len(spans)


def test_every_eval_evers_validator_takes_every_file(everything: Path, tmp_path: Path) -> None:
    root = exported(everything, export_eee, tmp_path / "o")
    names = {
        path.relative_to(root).as_posix(): path
        for path in (root / "data").rglob("*")
        if path.is_file()
    }
    validate = import_module("every_eval_ever.validator.validation_core").validate_file
    assert len(names) > 10
    for name, path in names.items():
        judged = validate(
            path,
            repo_path=name,
            available_files=frozenset(names),
            read_repo_file=lambda each: names[each].read_text(encoding="utf-8"),
            run_semantic_checks=True,
        )
        assert judged.valid, (name, judged.errors)
