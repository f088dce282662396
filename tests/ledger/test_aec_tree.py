"""Trees of aec-bench's records: of any generation in, and out again byte for byte."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.errors import InputError, LedgerError, RecordError
from proctor.exchange.aec_bench import find_records, submit_record
from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.ledger.entry import TrialEntry
from proctor.ledger.exchange.aec_tree import write_tree
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import seal
from proctor.ledger.verification.verify import verify_ledger
from proctor.traces.trajectory import load_trajectory
from tests.ledger.ledgers import make_ledger
from tests.record.samples import DATA, read_data, spelled

JOBS = Path(__file__).resolve().parents[1] / "data" / "harbor" / "jobs"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[OpenLedger]:
    with make_ledger(tmp_path) as made:
        yield made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """One record of every generation, evidence beside the first."""
    root = tmp_path / "tree"
    for name in ("g1-partial.json", "g1x.json"):
        record = json.loads(read_data(name))
        # Paths of a container, which a complete record may not rest on.
        record["outputs"] |= {"trajectory_path": None, "conversation_path": None}
        path = root / record["experiment_id"] / f"{record['trial_id']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(spelled(record))
        artifacts = path.parent / "_artifacts" / record["trial_id"]
        (artifacts / "agent").mkdir(parents=True)
        (artifacts / "agent" / "trajectory.jsonl").write_text("{}\n")
        (artifacts / "link").symlink_to("/etc/hostname")
    shutil.copytree(DATA / "g2" / "experiment-001", root / "experiment-001", dirs_exist_ok=True)
    return root


def seal_tree(ledger: OpenLedger, tree: Path) -> list[int]:
    return [one.seq for one in seal(ledger, [submit_record(path) for path in find_records(tree)])]


def plain_files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def test_a_tree_of_every_generation_goes_in_and_comes_out_byte_for_byte(
    ledger: OpenLedger, tree: Path, tmp_path: Path
) -> None:
    places = seal_tree(ledger, tree)
    assert len(places) == 3
    ledger.refresh()
    written = write_tree(ledger, places, tmp_path / "out")
    assert (written.written, written.refused) == (3, [])
    assert plain_files(tmp_path / "out") == plain_files(tree)
    assert verify_ledger(Path(ledger.where)).damage == []


def find_transcript(record: Path, root: Path) -> Path | None:
    """Where aec-bench finds the transcript of a record: see the module."""
    outputs = json.loads(record.read_bytes())["outputs"]
    for name in (outputs["trajectory_path"], outputs["conversation_path"]):
        parts = Path(name or "").parts
        if "jobs" in parts:
            path = root.joinpath(*parts[parts.index("jobs") :])
            if path.is_file():
                return path
    return None


@pytest.mark.parametrize("job", ["04-binary-scripted-k5", "14-two-models", "16-agent-nonzero"])
def test_every_transcript_is_found_and_a_second_import_gives_the_same_records(
    ledger: OpenLedger, tmp_path: Path, job: str
) -> None:
    found = find_trials(JOBS / job, JobOptions())
    submissions = [offer.submit() for offer in found.offers]
    places = [one.seq for one in seal(ledger, submissions)]
    ledger.refresh()
    out = tmp_path / "out"
    assert write_tree(ledger, places, out).written == len(places)
    traced = {
        each.loaded.record.trial_id
        for each in submissions
        if each.loaded and each.loaded.record.outputs.trajectory_path
    }
    records = find_records(out)
    transcripts = {path.stem: find_transcript(path, out) for path in records}
    assert {name for name, path in transcripts.items() if path} == traced
    for path in filter(None, transcripts.values()):
        assert load_trajectory(str(path)).entries
    assert [submit_record(path).record for path in records] == [
        each.record for each in sorted(submissions, key=lambda each: Path(each.where).name)
    ]


def test_a_second_import_and_a_second_export_change_nothing(
    ledger: OpenLedger, tree: Path, tmp_path: Path
) -> None:
    places = seal_tree(ledger, tree)
    size = ledger.checkpoint().tree.size
    assert seal_tree(ledger, tree) == places
    assert ledger.checkpoint().tree.size == size
    ledger.refresh()
    for _ in range(2):
        assert write_tree(ledger, places, tmp_path / "out").written == 3


def test_what_aec_bench_could_not_read_is_left_out_and_told(
    ledger: OpenLedger, tree: Path, tmp_path: Path
) -> None:
    path = next(iter(sorted(tree.glob("*/*.json"))))
    document = json.loads(path.read_bytes())
    document["evaluation"]["reward"] = None
    path.write_text(json.dumps(document))
    places = seal_tree(ledger, tree)
    ledger.refresh()
    written = write_tree(ledger, places, tmp_path / "out")
    assert written.written == 2
    assert "evaluation.reward is null" in written.refused[0]


def test_an_export_replaces_nothing(ledger: OpenLedger, tree: Path, tmp_path: Path) -> None:
    places = seal_tree(ledger, tree)
    ledger.refresh()
    write_tree(ledger, places, tmp_path / "out")
    changed = next((tmp_path / "out").glob("*/*.json"))
    changed.write_text("mine")
    with pytest.raises(LedgerError, match="an export replaces nothing"):
        write_tree(ledger, places, tmp_path / "out")
    assert changed.read_text() == "mine"


def test_a_record_that_is_not_where_its_ids_say_is_refused(tree: Path) -> None:
    path = next(iter(sorted(tree.glob("*/*.json"))))
    moved = path.with_name("other.json")
    path.rename(moved)
    with pytest.raises(RecordError, match="its path does not match"):
        submit_record(moved)


def test_a_directory_without_records_is_no_tree(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no records"):
        find_records(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        find_records(tmp_path / "nowhere")


def test_a_complete_record_that_names_paths_of_its_container_comes_in(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    record = json.loads(read_data("g1-complete.json"))
    path = tmp_path / "tree" / record["experiment_id"] / f"{record['trial_id']}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(spelled(record))
    shown = path.parent / "_artifacts" / record["trial_id"] / "media"
    shown.mkdir(parents=True)
    (shown / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (shown / "b\n.png").write_bytes(b"no plain name")
    assert record["outputs"]["conversation_path"].startswith("/workspace/")
    (sealed,) = seal(ledger, [submit_record(path)])
    assert sealed.status == "sealed"
    ledger.refresh()
    entry = ledger.entry(sealed.seq)
    assert isinstance(entry, TrialEntry)
    assert [file.path for file in entry.evidence] == ["media/a.png"]
    named = [name for finding in entry.findings for name in finding["detail"]["files"]]
    assert named == [record["outputs"]["conversation_path"], "media/b\n.png"]


def test_links_in_a_tree_are_not_followed(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    records = find_records(tree)
    (tree / "linked").symlink_to(other / "experiment-001")
    assert find_records(tree) == records
    artifacts = tree / "experiment-001" / "_artifacts"
    shutil.rmtree(artifacts)
    artifacts.symlink_to(other / "experiment-001" / "_artifacts")
    submissions = [submit_record(path) for path in find_records(tree)]
    assert all(each.evidence == () for each in submissions)
    assert all("not evidence: links" in each.findings[-1]["message"] for each in submissions)
    moved = records[0].rename(tmp_path / "moved.json")
    records[0].symlink_to(moved)
    with pytest.raises(RecordError, match="a link, which is not followed"):
        submit_record(records[0])
