"""Trial records of every generation, and the files they name."""

import json
from pathlib import Path

import pytest

from proctor.audit.checks.checked import Checked
from proctor.audit.checks.records import check_record_file
from proctor.errors import RecordError
from tests.record.samples import DATA, DRAWING, spelled, tree


def check(path: Path, *roots: Path) -> Checked:
    return check_record_file(str(path), tuple(map(str, roots)))


def codes(found: Checked) -> list[tuple[str, bool]]:
    return [(each.code, each.is_problem) for each in found.diagnostics]


@pytest.mark.parametrize(
    ("name", "summary", "problems"),
    [
        ("g1-complete.json", "G1, complete, trial-001 of experiment-001, reward 1.0", []),
        ("g1-partial.json", "G1, partial, trial-002 of experiment-001, reward 0.0", []),
        ("g1x.json", "G1x, complete, trial-003 of experiment-001, reward 1.0", []),
        (
            "g2/experiment-001/trial-004.json",
            "G2, partial, trial-004 of experiment-001, reward 0.75",
            [],
        ),
        (
            "g1-complete-hollow.json",
            "G1, complete, trial-001 of experiment-001, reward 1.0",
            ["hollow-complete"],
        ),
    ],
)
def test_every_generation_is_read(name: str, summary: str, problems: list[str]) -> None:
    found = check(DATA / name)
    assert found.summary == summary
    assert len(found.unchecked) == 1
    assert "it names; pass their directory with --evidence DIR" in found.unchecked[0]
    assert len([each for each in found.diagnostics if each.is_problem]) == len(problems)


def test_a_hollow_complete_is_named_by_its_field() -> None:
    (found,) = check(DATA / "g1-complete-hollow.json").diagnostics
    assert "inputs.input_files has 'hash-123'" in found.message


def test_what_one_record_cannot_say_is_noted() -> None:
    found = check(DATA / "g2" / "experiment-001" / "trial-004.json")
    assert set(codes(found)) == {("without-place", False), ("partial", False)}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"evaluation.reward": None}, ("reward-null", False)),
        ({"evaluation.reward": 1.5}, ("reward-out-of-range", False)),
        ({"surprise": 1}, ("unknown-key", True)),
        ({"cost": {"tokens_in": 1, "cache_read_tokens": 2}}, None),
    ],
)
def test_what_is_noticed(
    tmp_path: Path, change: dict[str, object], expected: tuple[str, bool] | None
) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(spelled(tree(**change)))
    found = check(path)
    if expected is None:
        assert not found.is_sound
    else:
        assert codes(found) == [expected]


def test_what_aec_bench_cannot_hold_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(spelled(tree(**{"evaluation.reward": None})))
    found = check(path)
    assert found.summary.endswith("reward not scored")
    assert "aec-bench expects a number" in found.diagnostics[0].message


def test_a_key_given_twice_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    data = spelled(tree())
    path.write_bytes(data.replace(b'"trial_id"', b'"trial_id": "other", "trial_id"', 1))
    assert codes(check(path)) == [("duplicate-key", True)]


def test_what_no_record_can_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(spelled(tree()).replace(b"trial-001", b"\xff"))
    with pytest.raises(RecordError, match=r"record\.json: byte \d+ is not UTF-8"):
        check(path)


# Evidence


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    root.mkdir()
    (root / "drawing.json").write_bytes(DRAWING)
    (root / "trajectory.jsonl").write_bytes(b"")
    return root


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record that names its files by relative paths."""
    document = tree()
    document["inputs"]["input_files"][0]["path"] = "drawing.json"
    document["outputs"]["trajectory_path"] = "trajectory.jsonl"
    document["outputs"]["conversation_path"] = None
    path = tmp_path / "record.json"
    path.write_bytes(spelled(document))
    return path


def test_files_with_the_digest_of_the_record_are_verified(record: Path, root: Path) -> None:
    found = check(record, root)
    assert found.is_sound
    assert found.summary.endswith("files verified 1, files present 1")
    assert found.unchecked == ()


def test_an_altered_file_is_a_problem(record: Path, root: Path) -> None:
    (root / "drawing.json").write_bytes(b"altered")
    found = check(record, root)
    assert codes(found) == [("file-differs", True)]
    assert "the record says" in found.diagnostics[0].message


def test_a_missing_input_cannot_be_checked(record: Path, root: Path) -> None:
    (root / "drawing.json").unlink()
    found = check(record, root)
    assert found.is_sound
    assert found.unchecked == ("drawing.json: in none of the given directories",)


def test_a_missing_trace_is_a_problem(record: Path, root: Path) -> None:
    (root / "trajectory.jsonl").unlink()
    assert codes(check(record, root)) == [("file-absent", True)]


def test_a_link_out_of_the_directory_is_not_followed(record: Path, root: Path) -> None:
    (root.parent / "outside").write_bytes(DRAWING)
    (root / "drawing.json").unlink()
    (root / "drawing.json").symlink_to("../outside")
    found = check(record, root)
    assert codes(found) == [("file-refused", True)]
    assert "leads out of" in found.diagnostics[0].message


def test_the_directory_that_knows_most_counts(record: Path, root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "drawing.json").write_bytes(b"altered")
    assert check(record, other, root).is_sound
    assert check(record, root, other).is_sound
    assert not check(record, other).is_sound


def test_a_directory_that_is_none_is_refused(record: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="missing: not a directory"):
        check(record, tmp_path / "missing")


def test_an_id_that_leads_elsewhere_is_a_problem(tmp_path: Path) -> None:
    document = json.loads((DATA / "g1-complete.json").read_text())
    document["trial_id"] = "../../etc/passwd"
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document))
    found = check_record_file(str(path))
    assert [each.code for each in found.diagnostics if each.is_problem] == ["unsafe-id"]


def test_a_trace_that_is_none_is_a_problem(tmp_path: Path) -> None:
    document = json.loads((DATA / "g1-complete.json").read_text())
    document["outputs"]["trajectory_path"] = "reward.txt"
    (tmp_path / "reward.txt").write_text("1")
    (tmp_path / "other.json").write_text('{"trial_id": "x"}')
    path = tmp_path / "r.json"
    for name in ("reward.txt", "other.json"):
        document["outputs"]["trajectory_path"] = name
        path.write_text(json.dumps(document))
        found = check_record_file(str(path), (str(tmp_path),))
        assert not found.is_sound
        assert any("expected a trace" in each.message for each in found.diagnostics)
