"""The ledger for programs: what its page shows is run, and what it promises is so."""

import re
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.errors import (
    ConflictError,
    KeyFileError,
    LedgerError,
    MissingArtifactError,
    NotSealedError,
)
from proctor.ledger.api import Ledger, Submission, TrialFilter
from proctor.ledger.entry import KeyEntry, TrialEntry
from proctor.ledger.verification.verify import verify_ledger
from tests.conftest import ROOT
from tests.ledger.ledgers import record_bytes
from tests.ledger.trials import open_ledger, seal_files
from tests.record.samples import spelled, tree

EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs" / "guide" / "ledger.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where nobody has a key yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PROCTOR_KEY", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_of_the_page_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = home / "trial"
    (trial / "agent").mkdir(parents=True)
    (trial / "agent" / "trajectory.jsonl").write_text("{}\n")
    changes = {"outputs.trajectory_path": "agent/trajectory.jsonl"}
    changes["outputs.conversation_path"] = None  # type: ignore[assignment]
    (trial / "record.json").write_bytes(spelled(tree("g1-complete.json", **changes)))
    assert len(EXAMPLES) >= 4
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(example, names)  # noqa: S102 - our own page
    assert "trial-001 " in capsys.readouterr().out
    found = verify_ledger(home / "ledger")
    assert (found.damage, found.withheld) == ([], 0)


def test_a_ledger_is_made_once_and_opened_then(home: Path) -> None:
    with Ledger.open_or_create("ledger", origin="example.org/x") as ledger:
        assert ledger.checkpoint().origin == "example.org/x"
    with Ledger.open_or_create("ledger") as ledger:
        assert ledger.checkpoint().origin == "example.org/x"
        assert isinstance(ledger.lookup("0"), KeyEntry)
    assert (home / ".config" / "proctor" / "keys" / "default").stat().st_mode & 0o777 == 0o600


def test_the_evidence_is_kept_as_it_was(tmp_path: Path) -> None:
    files = {"a.txt": b"", "b/c.bin": bytes(range(256)) * 10_000}
    with open_ledger(tmp_path) as ledger:
        seal_files(ledger, "one", files)
        entry = ledger.entry(ledger.find("one").seq)
        assert isinstance(entry, TrialEntry)
        kept = {file.path: ledger.artifacts.load(file.sha256, file.size) for file in entry.evidence}
    assert kept == files
    assert verify_ledger(tmp_path / "ledger").damage == []


def test_evidence_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger, pytest.raises(MissingArtifactError, match="is missing"):
        ledger.artifacts.load("0" * 64, 1)


def test_a_secret_is_not_sealed(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        (tmp_path / "trace").write_text("the key is sk-0123456789, psst")
        for record, evidence in (
            (record_bytes("one"), ["trace"]),
            (record_bytes("one", **{"inputs.instruction": "sk-0123456789"}), []),
        ):
            with pytest.raises(NotSealedError, match="contains the value of KEY"):
                ledger.seal(record, evidence, root=tmp_path, secrets={"KEY": "sk-0123456789"})
        assert ledger.trials() == []
    assert list((tmp_path / "ledger").rglob("*.zst")) == []


def test_other_bytes_of_a_sealed_trial_are_refused_with_both_digests(tmp_path: Path) -> None:
    with open_ledger(tmp_path, "one") as ledger:
        sealed = ledger.find("one").record
        with pytest.raises(ConflictError) as refused:
            ledger.seal(record_bytes("one", **{"evaluation.reward": 0.25}))
        digests = re.findall(r"[0-9a-f]{64}", str(refused.value))
        assert digests[0] == sealed != digests[1]
        seal_files(ledger, "two", {"a": b"1"})
        with pytest.raises(ConflictError) as refused:
            seal_files(ledger, "two", {"a": b"2"})
        assert len(set(re.findall(r"[0-9a-f]{64}", str(refused.value)))) == 2
        assert len(ledger.trials()) == 2


def test_many_are_sealed_together_or_not_at_all(tmp_path: Path) -> None:
    with open_ledger(tmp_path, "one") as ledger:
        with pytest.raises(LedgerError):
            ledger.seal_all(
                [
                    *map(_submit, [record_bytes("two"), record_bytes("three")]),
                    _submit(record_bytes("one", **{"evaluation.reward": 0.25})),
                ]
            )
        assert [row.trial_id for row in ledger.trials()] == ["one"]


def _submit(record: bytes) -> Submission:
    return Submission(record=record, where="a record")


def test_a_trial_that_we_ran_is_sealed_from_its_directory(tmp_path: Path) -> None:
    trial = tmp_path / "fix-bug__a1B2c3D"
    (trial / "attempts" / "1").mkdir(parents=True)
    (trial / "attempts" / "1" / "kept.txt").write_text("not of this attempt")
    (trial / "agent").mkdir()
    (trial / "agent" / "log\n.txt").write_text("a name that is no plain text")
    (trial / "agent" / "link").symlink_to("/etc/passwd")
    (trial / "findings.json").write_text('[{"code": "clock-jumped", "phase": "agent"}]')
    (trial / "record.json").write_bytes(record_bytes("fix-bug__a1B2c3D"))
    with open_ledger(tmp_path) as ledger:
        sealed = ledger.seal_trial(trial, experiment="nightly")
        assert (sealed.experiment_id, sealed.trial_id) == ("nightly", "fix-bug__a1B2c3D")
        entry = ledger.entry(ledger.find("fix-bug").seq)
        assert isinstance(entry, TrialEntry)
        assert [file.path for file in entry.evidence] == ["findings.json", "record.json"]
        codes = [finding["code"] for finding in entry.findings]
        assert codes == ["clock-jumped", "files-refused"]
        assert entry.findings[1]["detail"] == {"files": ["agent/link", "agent/log\n.txt"]}
        assert sha256_hex(ledger.record(ledger.find("fix-bug"))) == sealed.record


def test_a_trial_without_a_result_says_why_it_has_no_score(tmp_path: Path) -> None:
    trial = tmp_path / "one"
    trial.mkdir()
    record = record_bytes("one", completeness="partial", **{"evaluation.reward": None})
    (trial / "record.json").write_bytes(record)
    with open_ledger(tmp_path) as ledger:
        ledger.seal_trial(trial)
        (row,) = ledger.trials(TrialFilter(status="diagnostic"))
    assert (row.reward, row.reason_code) == (None, "harbor_trial_result_missing")
    # What a killed trial raised is unknown.
    assert row.exception is None


def test_a_withheld_record_is_not_given(tmp_path: Path) -> None:
    with open_ledger(tmp_path, "one") as ledger:
        ledger.withhold(ledger.find("one"), reason="r", author="a")
        with pytest.raises(LedgerError, match="experiment-001/one was withheld"):
            ledger.record(ledger.find("one"))


def test_somebody_elses_key_cannot_write(tmp_path: Path, home: Path) -> None:
    open_ledger(tmp_path, "one").close()
    with Ledger.open(tmp_path / "ledger") as ledger, pytest.raises(KeyFileError, match="signed by"):
        ledger.seal(record_bytes("two"))
