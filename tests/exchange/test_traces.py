"""A directory of loose traces, whatever its files are called."""

import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import InputError, TraceError
from proctor.exchange.intake import Reconciliation, seal_offers
from proctor.exchange.traces import TraceOptions, find_traces
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import Submission
from proctor.ledger.traced_trials import trace_named
from proctor.record.ids import check_id
from proctor.traces.entry import TraceKind
from proctor.traces.traced_trial import opened_traces
from tests.audit.directories import COPIED
from tests.examples import examples
from tests.ledger.ledgers import find_key, make_ledger

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = TraceOptions(experiment="loose", when=WHEN)
ATIF = min((COPIED / "04-binary-scripted-k5").glob("*/agent/trajectory.json"))
HEADER = {"version": 1, "format": "aec-bench-trajectory", "timestamp": "2026-03-01T10:00:00Z"}


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


TRAJECTORY = lines(
    HEADER,
    {"role": "system", "step": 0, "content": "Be brief."},
    {"role": "user", "step": 0, "content": "Fix it."},
    {"role": "assistant", "step": 1, "content": "ok", "timestamp": "2026-03-01T10:01:30Z"},
)
CONVERSATION = lines({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"})


def put(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def submit_all(root: Path, asked: TraceOptions = ASKED) -> list[Submission]:
    return [offer.submit() for offer in find_traces(root, asked).offers]


def record_of(submission: Submission) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(submission.record)
    return record


def bring_in(root: Path, place: Path, asked: TraceOptions = ASKED) -> Reconciliation:
    if not (place / "ledger").exists():
        make_ledger(place).close()
    offers = find_traces(root, asked).offers
    return seal_offers(offers, lambda: OpenLedger.open(place / "ledger", key=find_key(place)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the traces are."""
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def test_every_kind_at_any_depth_is_a_trial_and_can_be_looked_at(
    root: Path, tmp_path: Path
) -> None:
    put(root, "one.jsonl", TRAJECTORY)
    put(root, "a/b/c/two.jsonl", CONVERSATION)
    put(root, "a/three.json", ATIF.read_text())
    put(root, "notes.json", "{}")
    put(root, "readme.md", "no trace")
    found = find_traces(root, ASKED)
    assert (len(found.offers), found.n_others) == (3, 1)
    assert len(bring_in(root, tmp_path).new) == 3
    again = bring_in(root, tmp_path)
    assert (len(again.new), len(again.known)) == (0, 3)
    with OpenLedger.open(tmp_path / "ledger") as ledger:
        ledger.refresh()
        kinds = []
        for trial in trace_named(ledger, "loose"):
            with opened_traces(trial) as traces:
                kinds += [trace.kind for trace in traces]
    assert sorted(kinds) == sorted(set(TraceKind) - {TraceKind.OUTPUT})


def test_a_record_says_what_the_trace_tells_and_no_more(root: Path) -> None:
    put(root, "one.jsonl", TRAJECTORY)
    (record,) = map(record_of, submit_all(root))
    assert record["trial_id"] == "one.jsonl"
    assert record["timestamp"] == "2026-03-01T10:01:30Z"
    assert record["timing"]["total_seconds"] == 90.0
    assert record["inputs"]["instruction"] == "Fix it."
    assert record["inputs"]["system_prompt"] == "Be brief."
    assert (record["agent"]["adapter"], record["agent"]["model"]) == ("unresolved", "none")
    assert record["task"]["task_id"] == "unresolved"
    assert record["evaluation"]["reward"] is None
    assert record["outputs"]["trajectory_path"] == "one.jsonl"
    assert (record["completeness"], record["cost"]) == ("partial", None)


def test_what_is_known_beside_a_trace_stands_in_its_record(root: Path) -> None:
    put(root, "one.jsonl", CONVERSATION)
    asked = TraceOptions(task="fix", model="acme/x", agent="mini", dataset_id="set@1", when=WHEN)
    (record,) = map(record_of, submit_all(root, asked))
    assert record["experiment_id"] == root.name
    assert (record["task"]["task_id"], record["dataset_id"]) == ("fix", "set@1")
    assert (record["agent"]["adapter"], record["agent"]["model"]) == ("mini", "acme/x")
    assert record["timestamp"] == "2026-01-01T00:00:00Z"


def test_an_atif_file_brings_its_agent_model_and_tokens(root: Path) -> None:
    put(root, "one.json", ATIF.read_text())
    (record,) = map(record_of, submit_all(root))
    document = json.loads(ATIF.read_text())
    sums = document["final_metrics"]
    assert record["agent"]["adapter"] == document["agent"]["name"]
    assert record["cost"]["tokens_in"] == sums["total_prompt_tokens"]
    assert record["cost"]["cache_read_tokens"] == sums["total_cached_tokens"]


def test_traces_of_the_usual_names_in_one_place_are_one_run(root: Path) -> None:
    put(root, "x/trajectory.jsonl", TRAJECTORY)
    put(root, "x/conversation.jsonl", CONVERSATION)
    put(root, "x/other.jsonl", CONVERSATION)
    first, second = submit_all(root)
    assert first.evidence == ("trajectory.jsonl", "conversation.jsonl")
    outputs = record_of(first)["outputs"]
    assert outputs["conversation_path"] == "conversation.jsonl"
    assert second.evidence == ("other.jsonl",)


def test_media_beside_a_trace_are_evidence_and_others_are_not(root: Path, tmp_path: Path) -> None:
    (tmp_path / "out.png").write_bytes(b"secret")
    shown = ["a.png", "../../out.png", str(tmp_path / "out.png"), "gone.png"]
    entry: dict[str, object] = {"role": "tool_result", "step": 1, "stdout": "", "media": shown}
    put(root, "x/one.jsonl", lines(HEADER, entry))
    put(root, "x/artifacts/a.png", "picture")
    (found,) = submit_all(root)
    assert found.evidence == ("one.jsonl", "artifacts/a.png")


def test_without_a_time_a_trace_is_refused_with_the_way_on(root: Path) -> None:
    path = put(root, "one.jsonl", CONVERSATION)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    with pytest.raises(TraceError, match=r"pass --when TIME .* at 2023-11-14T22:13:20Z"):
        submit_all(root, TraceOptions())


def test_links_pipes_and_hidden_files_are_passed_over(root: Path, tmp_path: Path) -> None:
    outside = put(tmp_path, "outside/one.jsonl", TRAJECTORY)
    put(root, "good.jsonl", TRAJECTORY)
    put(root, ".git/one.jsonl", TRAJECTORY)
    (root / "link.jsonl").symlink_to(outside)
    (root / "folder").symlink_to(outside.parent)
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe.jsonl")
    assert [each.evidence for each in submit_all(root)] == [("good.jsonl",)]


def test_an_empty_trace_is_refused_and_the_rest_comes_in(root: Path, tmp_path: Path) -> None:
    put(root, "good.jsonl", TRAJECTORY)
    put(root, "x/trajectory.jsonl", "")
    outcome = bring_in(root, tmp_path)
    assert (len(outcome.new), len(outcome.refused)) == (1, 1)
    assert "nothing usable in it" in outcome.refused[0].message


@pytest.mark.parametrize(
    ("name", "sentence"), [("nothing", "no such directory"), ("file", "this is a file")]
)
def test_what_is_no_directory_of_traces_is_said(root: Path, name: str, sentence: str) -> None:
    put(root, "file", "x")
    with pytest.raises(InputError, match=sentence):
        find_traces(root / name, ASKED)
    with pytest.raises(InputError, match="no trace in it"):
        find_traces(root, ASKED)


NAMES = st.lists(
    st.text(
        st.characters(blacklist_characters="/\0", blacklist_categories=()), min_size=1, max_size=20
    ).filter(lambda name: name not in (".", "..") and not name.startswith(".")),
    min_size=1,
    max_size=3,
)


def is_name(parts: list[str]) -> bool:
    try:
        return all(len(os.fsencode(part)) < 200 for part in parts)
    except UnicodeEncodeError:
        return False


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(NAMES.filter(is_name), min_size=1, max_size=5))
def test_any_name_is_a_trial_of_its_own_or_refused_with_a_sentence(paths: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "runs")
        written = set()
        for parts in paths:
            path = root.joinpath(*parts[:-1], f"{parts[-1]}.jsonl")
            try:
                put(root, str(path.relative_to(root)), TRAJECTORY)
            except OSError:  # a file is there where this one needs a directory
                continue
            written.add(path)
        outcome = bring_in(root, Path(place))
        assert outcome.found == len(written)
        assert len({each.trial_id for each in outcome.new}) == len(outcome.new)
        for each in outcome.new:
            check_id(each.trial_id, "trial_id")
        for refused in outcome.refused:
            assert "expected a plain relative path" in refused.message
            json.dumps(refused.where).encode()
