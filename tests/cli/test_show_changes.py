"""`proctor show --changes`, and the two lines that `proctor show` has of a trial's environment."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.ledger.api import Ledger
from tests.audit.directories import COPIED
from tests.cli.programs import Proctor
from tests.cli.test_terminal_escapes import HOSTILE, is_harmless
from tests.exchange.trials import write_record
from tests.ledger.ledgers import EXPERIMENT
from tests.ledger.trials import open_ledger, seal_files
from tests.trial.changed import DIGEST, change, changes, differing, room

LINES = (
    change("/app/a.py"),
    change("/app/link", kind="link", target="/tests/x", size=None, sha256="", mode="0777"),
    change("/root/notes", place="home", size=7),
    change("/usr/bin/python", how="changed", place="system", mode="0755", size=12345),
    change("/app/gone", how="deleted", when="verification", size=None, sha256="", mode=""),
    change("/opt/agent", when="setup"),
)
FILES = {"changes.jsonl": changes(*LINES), "clean-room.json": differing()}
SHOWN = """\
system, 1 path
  changed  file  0755  12,345  e3b0c44298fc  /usr/bin/python

work, 2 paths
  created  file  0644  1,234  e3b0c44298fc  /app/a.py
  created  link  0777      -  -             /app/link -> /tests/x

home, 1 path
  created  file  0644  7  e3b0c44298fc  /root/notes

during verification, 1 path
  deleted  file  -  -  -  /app/gone
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    with open_ledger(tmp_path, "plain") as ledger:
        seal_files(ledger, "changed", FILES)
        yield ledger


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A trial in a directory."""
    name = "pass-simple__35oQqES"
    copied = shutil.copytree(COPIED / "04-binary-scripted-k5" / name, tmp_path / "job" / name)
    return Path(copied)


def put(trial: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (trial / name).parent.mkdir(parents=True, exist_ok=True)
        (trial / name).write_bytes(data)
    return trial


@pytest.mark.usefixtures("ledger")
def test_a_sealed_trials_changes_are_listed_the_system_first(proctor: Proctor) -> None:
    ran = proctor("show", "changed", "--changes")
    head = f"{EXPERIMENT}/changed: 6 paths differ from the image\nchanges: 1 system, 2 work, 1 home"
    end = "set-up, 1 path; --full lists them"
    assert (ran.code, ran.out) == (0, f"{head}\n\n{SHOWN}\n{end}\n")
    full = proctor("show", "changed", "--changes", "--full").out
    assert f"set-up, 1 path\n  created  file  0644  1,234  {DIGEST}  /opt/agent\n" in full


@pytest.mark.usefixtures("ledger")
def test_as_json_the_lines_are_as_they_are(proctor: Proctor) -> None:
    document = json.loads(proctor("show", "changed", "--changes", "--json").out)
    (part,) = document["parts"]
    assert part["header"]["places"] == {"work": 2, "home": 1, "system": 1}
    assert part["changes"] == list(LINES)


def test_a_trial_in_a_directory_is_shown_the_same_by_any_name(
    proctor: Proctor, trial: Path
) -> None:
    put(trial, FILES)
    shown = proctor("show", trial, "--changes").out
    assert SHOWN in shown
    record = trial / "record.json"
    made = trial.parent.parent / "record.json"
    write_record(trial, made)
    made.rename(record)
    assert proctor("show", record, "--changes").out.splitlines()[2:] == shown.splitlines()[2:]
    for path in (trial, record):
        lines = proctor("show", path).out.splitlines()
        assert "  changes: 1 system, 2 work, 1 home" in lines
        assert "  clean room: differs: 0.0 against 1.0, 4 paths left out" in lines


def test_steps_are_shown_one_after_the_other(proctor: Proctor, trial: Path) -> None:
    files = {f"steps/{step}/changes.jsonl": changes(change(f"/app/{step}")) for step in "ab"}
    put(trial, files | {"steps/b/changes.jsonl": changes(change("/app/a"), change("/app/b"))})
    shown = proctor("show", trial, "--changes").out
    assert shown.index(", part a: 1 path differs") < shown.index(", part b: 2 paths differ")
    assert "part a" not in proctor("show", trial, "--changes", "--part", "b").out
    assert proctor("show", trial, "--changes", "--part", "c").code == 2
    assert "  changes: 0 system, 2 work, 0 home, after step b\n" in proctor("show", trial).out


def test_a_trial_without_a_change_record_says_so(proctor: Proctor, trial: Path) -> None:
    ran = proctor("show", trial, "--changes")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.endswith("has no changes.jsonl\n")
    assert "clean room" not in proctor("show", trial).out
    skipped = [{"code": "clean-room-skipped", "phase": "x", "message": "x", "detail": {}}]
    put(trial, {"findings.json": json.dumps(skipped).encode()})
    assert "  clean room: skipped: no reason is on record\n" in proctor("show", trial).out


def test_what_is_withheld_is_no_damage(proctor: Proctor, ledger: Ledger) -> None:
    for data in FILES.values():
        ledger.artifacts.remove(sha256_hex(data))
    ran = proctor("show", "changed", "--changes")
    assert (ran.code, ran.out) == (0, "")
    assert "changes.jsonl is not here" in ran.err
    assert "  changes: changes.jsonl is not here\n" in proctor("show", "changed").out


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["0", "--changes"], "--changes cannot be used with an entry that is not a trial"),
        (["changed", "--changes", "--step", "1"], "--step cannot be used with --changes"),
        (["changed", "--changes", "--raw"], "--changes cannot be combined with --raw"),
        (
            ["changed", "--changes", "--evidence", "x"],
            "--changes cannot be combined with --evidence",
        ),
        (["changed", "--changes", "--full", "--json"], "--json cannot be combined with --full"),
    ],
)
def test_what_does_not_go_together_is_refused(
    proctor: Proctor, arguments: list[str], sentence: str
) -> None:
    ran = proctor("show", *arguments)
    assert (ran.code, sentence in ran.err) == (2, True), ran.err


def test_a_strangers_record_does_no_harm(proctor: Proctor, trial: Path) -> None:
    line = change(HOSTILE, how=HOSTILE, kind=HOSTILE, mode=HOSTILE, sha256=HOSTILE, target=HOSTILE)
    verdict = room(HOSTILE, reason=HOSTILE, first=None)
    bad = changes(line, change("x" * 1000, size=-(1 << 80))) + b'{"path": "\\ud800"}\nnot JSON\n'
    put(trial, {"changes.jsonl": bad, "clean-room.json": json.dumps(verdict).encode()})
    for options in ([], ["--changes"], ["--changes", "--full"], ["--changes", "--json"]):
        ran = proctor("show", trial, *options)
        assert ran.code == 0
        assert is_harmless(ran.out + ran.err)
    shown = proctor("show", trial, "--changes").out
    assert "problem: line 4: " in shown
    assert f"  {'x' * 400}…\n" in shown
    put(trial, {"changes.jsonl": b"5", "clean-room.json": b"5"})
    assert (
        "its changes.jsonl cannot be used\nproblem: line 1:"
        in proctor("show", trial, "--changes").out
    )
    assert "  clean room: clean-room.json: Expected `object`" in proctor("show", trial).out
