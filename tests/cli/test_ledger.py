"""`proctor ledger`: init, seal, list, review, withhold and verify, as people meet them."""

import csv
import io
import json
import re
from pathlib import Path

import click
import pytest

from proctor.cli.ledger import COMMANDS, command
from proctor.cli.main import cli
from tests.audit.directories import COPIED
from tests.cli.programs import Proctor, run_child
from tests.ledger.ledgers import record_bytes

JOB = COPIED / "04-binary-scripted-k5"
TRIALS = sorted(str(path) for path in JOB.glob("pass-two__*"))
ONE = Path(TRIALS[0]).name


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with a home of her own, in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PROCTOR_KEY", "PROCTOR_LEDGER", "XDG_CONFIG_HOME", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_record(path: Path, trial: str, **changes: object) -> Path:
    path.write_bytes(record_bytes(trial, **changes))
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    context = cli.make_context("proctor", ["--help"], resilient_parsing=True)
    assert isinstance(command, click.Group)
    found = command.get_command(context, name)
    assert found is not None
    assert found.help is not None
    assert found.help.partition("\n")[0] == COMMANDS[name]


# init


def test_a_ledger_is_made_with_a_key_of_ones_own(proctor: Proctor, home: Path) -> None:
    ran = proctor("ledger", "init", "--origin", "example.org/runs", "--json")
    made = json.loads(ran.out)
    assert (ran.code, made["origin"], made["size"], made["is_new_key"]) == (
        0, "example.org/runs", 1, True,
    )  # fmt: skip
    key = home / ".config" / "proctor" / "keys" / "default"
    assert made["key_file"] == str(key)
    assert made["public_key"].startswith("example.org/runs+")
    assert key.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in ran.out + ran.err
    ran = proctor("ledger", "init", "--ledger", "second")
    assert "made just now" not in ran.out
    assert ran.code == 0


def test_a_ledger_is_not_made_twice(proctor: Proctor) -> None:
    assert proctor("ledger", "init").code == 0
    before = Path("ledger/checkpoint").read_bytes()
    ran = proctor("ledger", "init", "--origin", "other")
    assert (ran.code, "ledger: there is a ledger already" in ran.err) == (2, True)
    assert Path("ledger/checkpoint").read_bytes() == before


@pytest.mark.parametrize("origin", ["", " x", "a\nb", "x" * 201, "\x1b[31m"])
def test_an_origin_that_no_checkpoint_can_state_is_refused(proctor: Proctor, origin: str) -> None:
    ran = proctor("ledger", "init", "--origin", origin)
    assert (ran.code, "expected a name on one line" in ran.err) == (2, True)
    assert not Path("ledger").exists()
    assert not Path(".config").exists()


# seal


def test_trials_are_sealed_and_only_once(proctor: Proctor) -> None:
    ran = proctor("ledger", "seal", *TRIALS, "--experiment", "nightly")
    assert ran.code == 0
    assert "a new ledger" in ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"nightly/{ONE}: diagnostic, entry 1, ")
    assert lines[-1] == "5 sealed"
    ran = proctor("ledger", "seal", *TRIALS, "--experiment", "nightly")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].startswith(f"nightly/{ONE}: sealed already, entry 1, ")
    assert ran.out.splitlines()[-1] == "5 sealed before"


def test_with_its_task_a_trial_is_complete(proctor: Proctor) -> None:
    task = COPIED.parent / "tasks" / "binary" / "pass-two"
    ran = proctor("ledger", "seal", TRIALS[0], "--experiment", "e", "--task", task, "--json")
    (sealed,) = json.loads(ran.out)["sealed"]
    assert (ran.code, sealed["status"], sealed["is_new"]) == (0, "sealed", True)


def test_one_that_is_refused_does_not_stop_the_others(proctor: Proctor, home: Path) -> None:
    good = write_record(home / "good.json", "good")
    bad = write_record(home / "bad.json", "../x")
    ran = proctor("ledger", "seal", bad, good, home / "nix", "--json")
    said = json.loads(ran.out)
    assert ran.code == 3
    assert [each["trial_id"] for each in said["sealed"]] == ["good"]
    assert "trial_id is '../x'" in " ".join(each["message"] for each in said["refused"])
    assert len(said["refused"]) == 2
    assert proctor("ledger", "seal", bad).code == 2


def test_other_bytes_are_refused_with_both_digests(proctor: Proctor, home: Path) -> None:
    assert proctor("ledger", "seal", write_record(home / "a.json", "one")).code == 0
    before = Path("ledger/checkpoint").read_bytes()
    ran = proctor("ledger", "seal", write_record(home / "b.json", "one", dataset_id="x"))
    assert ran.code == 2
    assert len(set(re.findall("[0-9a-f]{64}", ran.err))) == 2
    assert Path("ledger/checkpoint").read_bytes() == before


def test_trials_are_listed_as_they_were_named_new_or_not(proctor: Proctor, home: Path) -> None:
    a, b, c = (write_record(home / f"{name}.json", name) for name in "abc")
    assert proctor("ledger", "seal", b).code == 0
    said = json.loads(proctor("ledger", "seal", a, b, c, "--json").out)
    found = [(each["trial_id"], each["is_new"]) for each in said["sealed"]]
    assert found == [("a", True), ("b", False), ("c", True)]


def test_a_ledger_that_cannot_be_written_is_said_once(proctor: Proctor, home: Path) -> None:
    a, b, c = (write_record(home / f"{name}.json", name) for name in "abc")
    assert proctor("ledger", "seal", a).code == 0
    (home / "ledger" / "lock").unlink()
    (home / "ledger" / "lock").symlink_to(home / "elsewhere")
    ran = proctor("ledger", "seal", b, c)
    assert (ran.code, ran.err.count("cannot be written"), ran.out) == (2, 1, "")


def test_nothing_is_made_for_what_is_refused(proctor: Proctor, home: Path) -> None:
    ran = proctor("ledger", "seal", TRIALS[0])
    assert (ran.code, "a harbor trial needs --experiment E" in ran.err) == (2, True)
    ran = proctor("ledger", "seal", JOB, "--experiment", "e")
    assert (ran.code, "a job; expected one of the trial directories" in ran.err) == (2, True)
    ran = proctor("ledger", "seal", write_record(home / "r.json", "one"), "--experiment", "other")
    assert (ran.code, "of experiment 'experiment-001', not 'other'" in ran.err) == (2, True)
    assert sorted(path.name for path in home.iterdir()) == ["r.json"]


def test_a_declared_secret_is_not_sealed(
    proctor: Proctor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "sk-0123456789")
    record = write_record(home / "r.json", "one", **{"inputs.instruction": "use sk-0123456789"})
    ran = proctor("ledger", "seal", record, "--secret-env", "API_KEY")
    assert (ran.code, "contains the value of API_KEY" in ran.err) == (2, True)
    assert "sk-0123456789" not in ran.out + ran.err
    monkeypatch.setenv("SHORT", "1")
    ran = proctor("ledger", "seal", record, "--secret-env", "SHORT")
    assert (ran.code, "its value has fewer than 6 characters" in ran.err) == (2, True)
    ran = proctor("ledger", "seal", record, "--secret-env", "NO_KEY")
    assert (ran.code, "there is no such environment variable" in ran.err) == (2, True)


def test_a_record_takes_along_what_it_names_and_lies_beside_it(
    proctor: Proctor, home: Path
) -> None:
    (home / "trace.jsonl").write_text("{}\n")
    changes = {"outputs.trajectory_path": "trace.jsonl"}
    write_record(home / "r.json", "one", **changes)
    assert proctor("ledger", "seal", "r.json").code == 0
    ran = run_child("show", "one", "--evidence", "trace.jsonl", "--ledger", home / "ledger")
    assert (ran.code, ran.out) == (0, "{}\n")
    (home / "trace.jsonl").unlink()
    write_record(home / "r2.json", "two", **changes)
    ran = proctor("ledger", "seal", "r2.json")
    assert (ran.code, "'trace.jsonl' is not under" in ran.err) == (2, True)


def test_kept_attempts_are_trials_of_their_own(proctor: Proctor, home: Path) -> None:
    for place, name in (
        ("t", "t"),
        ("t/attempts/1", "t.attempt-1"),
        ("t/attempts/2", "t.attempt-2"),
    ):
        (home / place).mkdir(parents=True, exist_ok=True)
        (home / place / "config.json").write_text("{}")
        write_record(home / place / "record.json", name)
    assert proctor("ledger", "seal", "t", "--experiment", "nightly").code == 0
    listed = json.loads(proctor("ledger", "list", "--json").out)
    assert [each["trial_id"] for each in listed] == ["t.attempt-1", "t.attempt-2", "t"]
    assert {each["experiment_id"] for each in listed} == {"nightly"}
    assert {each["evidence_files"] for each in listed} == {2}
    assert [each["status"] for each in listed] == ["begun again", "begun again", "sealed"]
    # Whether an attempt counts depends on its trial, whatever is selected.
    one = proctor("ledger", "list", "--where", "trial=t.attempt-1").out
    assert one.splitlines()[1].split()[-1] == "restarted"
    complete = json.loads(proctor("ledger", "list", "--where", "status=sealed", "--json").out)
    assert [each["trial_id"] for each in complete] == ["t"]
    # The record in the trial's directory means the trial.
    assert (
        "3 sealed before"
        in proctor("ledger", "seal", "t/record.json", "--experiment", "nightly").out
    )


# list


@pytest.fixture
def sealed(proctor: Proctor, home: Path) -> None:
    assert proctor("ledger", "seal", *TRIALS, "--experiment", "nightly").code == 0
    rest = write_record(home / "r.json", "trial-x", **{"task.task_id": "\x1b[31mred\u202e"})
    assert proctor("ledger", "seal", rest).code == 0


@pytest.mark.usefixtures("sealed")
def test_a_list_as_json_is_a_list_of_objects(proctor: Proctor) -> None:
    ran = proctor("ledger", "list", "--json")
    listed = json.loads(ran.out)
    assert len(listed) == 6
    wanted = {"trial_id", "experiment_id", "task_id", "model", "reward", "completeness", "status"}
    assert all(wanted <= each.keys() for each in listed)
    lines = proctor("ledger", "list", "--jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == listed
    assert listed[5]["task_id"] == "\x1b[31mred\u202e"
    assert "\x1b" not in ran.out + "".join(lines)
    assert "\u202e" not in ran.out + "".join(lines)


@pytest.mark.usefixtures("sealed")
def test_a_list_as_csv_is_read_as_such(proctor: Proctor) -> None:
    rows = list(csv.DictReader(io.StringIO(proctor("ledger", "list", "--csv").out)))
    assert len(rows) == 6
    assert rows[0]["trial_id"] == ONE
    alone = proctor("ledger", "list", "--csv", "--columns", "task", "-l", "1").out
    assert alone == "task_id\n\\x1b[31mred\\u202e\n"


@pytest.mark.usefixtures("sealed")
def test_filters_and_columns(proctor: Proctor) -> None:
    ran = proctor("ledger", "list", "--experiment", "nightly", "--where", "reward=1", "-l", "2")
    head, *rows = ran.out.splitlines()
    assert head.split() == ["seq", "trial", "model", "reward", "status"]
    assert [row.split()[3] for row in rows] == ["1", "1"]
    for arguments, n in (
        (("--where", "task=pass-"), 5),
        (("--where", "agent=scripted"), 5),
        (("--where", "model=acme/model-x"), 5),
        (("--where", "status=sealed"), 1),
        (("--where", "since=2030-01-01"), 0),
        (("--where", "reward=..0"), 2),
        (("--where", f"trial={ONE}"), 1),
        (("--where", "dataset=nix"), 0),
    ):
        assert len(json.loads(proctor("ledger", "list", "--json", *arguments).out)) == n
    assert proctor("ledger", "list", "--where", "model=nix").out == "no trial matches\n"
    ran = proctor("ledger", "list", "--columns", "trial,seq", "-l", "1")
    assert ran.out.splitlines() == ["trial    seq", "trial-x    6"]


@pytest.mark.usefixtures("sealed")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--where", "reward=high"], "--where reward=high; expected 0.5..1"),
        (["--where", "reward=.."], "--where reward=..; expected 0.5..1"),
        (["--where", "reward=nan.."], "--where reward=nan..; expected 0.5..1"),
        (["--columns", "seq,nix"], "--columns 'nix'; expected some of seq"),
        (["--columns", "seq,seq"], "a column occurs twice"),
        (["--where", "since=soon"], "since is 'soon'; expected a time"),
        (["--json", "--csv"], "--csv cannot be combined with --json"),
        (["-l", "0"], "0 is not in the range"),
        (["--where", "status=lost"], "status is 'lost'; expected one of"),
        (["--where", "color=red"], "expected FIELD=VALUE with one of trial, dataset"),
        (["--where", "task"], "expected FIELD=VALUE with one of trial, dataset"),
        (["--where", "task=a", "--where", "task=b"], "expected one value of task"),
    ],
)
def test_a_wrong_wish_is_refused(proctor: Proctor, arguments: list[str], sentence: str) -> None:
    ran = proctor("ledger", "list", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


@pytest.mark.usefixtures("sealed")
def test_a_list_fits_its_terminal(proctor: Proctor, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = proctor("ledger", "list", "--columns", "seq,trial,record,task,model").out
    monkeypatch.setenv("COLUMNS", "80")
    narrow = proctor("ledger", "list", "--columns", "seq,trial,record,task,model").out
    assert max(map(len, wide.splitlines())) > 80
    assert max(map(len, narrow.splitlines())) == 80
    assert all(Path(trial).name in narrow for trial in TRIALS)
    assert "…" in narrow


def test_commands_that_read_make_no_ledger(proctor: Proctor, home: Path) -> None:
    for arguments in (
        ("list",), ("verify",), ("review", "x", "--verdict", "pass", "--reviewer", "a"),
        ("withhold", "x", "--reason", "r"),
    ):  # fmt: skip
        ran = proctor("ledger", *arguments)
        assert ran.code == 2
        assert "ledger: not a ledger: found nothing" in ran.err
    assert not (home / "ledger").exists()


# review, withhold, verify


@pytest.mark.usefixtures("sealed")
def test_reviews_are_kept_and_the_latest_is_listed(proctor: Proctor) -> None:
    said = ("ledger", "review", ONE, "--note", "n\n", "--verdict")
    assert proctor(*said, "fail", "--reviewer", "ana").code == 0
    ran = proctor(*said, "pass", "--reviewer", "ben")
    assert ran.out == f"nightly/{ONE}: pass by ben, entry 8, 2 reviews in all\n"
    listed = json.loads(proctor("ledger", "list", "--where", f"trial={ONE}", "--json").out)
    assert listed[0]["review"] == "pass"
    shown = proctor("show", ONE).out
    assert shown.index("fail by ana: n") < shown.index("pass by ben: n")
    ran = proctor("ledger", "review", ONE, "--verdict", "maybe", "--reviewer", "ana")
    assert ran.code == 2


@pytest.mark.usefixtures("sealed")
def test_a_trial_is_withheld(proctor: Proctor) -> None:
    ran = proctor("ledger", "withhold", ONE, "--reason", "a key", "--author", "ana", "--json")
    done = json.loads(ran.out)
    assert (ran.code, done["is_new"], done["line"]) == (0, True, 1)
    assert "1 withheld" in proctor("ledger", "verify").out
    assert "withheld its bytes by ana: a key" in proctor("show", ONE).out
    ran = proctor("show", ONE, "--raw")
    assert (ran.code, f"nightly/{ONE}: withheld" in ran.err) == (2, True)
    again = proctor("ledger", "withhold", ONE, "--reason", "a key", "--author", "ana")
    assert "which existed already" in again.out


@pytest.mark.usefixtures("sealed")
def test_a_withholding_without_a_word_is_refused(proctor: Proctor) -> None:
    for arguments, sentence in (
        ((), "Missing option '--reason'"),
        (("--reason", " "), "the reason is empty"),
        (
            ("--reason", "r", "--evidence-only", "--evidence", "x"),
            "cannot be combined with --evidence",
        ),
        (("--reason", "r", "--evidence", "nix"), "has no evidence 'nix'"),
    ):
        ran = proctor("ledger", "withhold", ONE, *arguments)
        assert (ran.code, sentence in ran.err) == (2, True)
    ran = proctor("ledger", "withhold", "0", "--reason", "r")
    assert (ran.code, "entry 0 is not a trial" in ran.err) == (2, True)


@pytest.mark.usefixtures("sealed")
def test_verify_names_damage_and_leaves_with_one(proctor: Proctor, home: Path) -> None:
    ran = proctor("ledger", "verify", "--json")
    assert (ran.code, json.loads(ran.out)["is_sound"]) == (0, True)
    kept = home / "older"
    kept.write_bytes(Path("ledger/checkpoint").read_bytes())
    assert proctor("ledger", "verify", "--since", kept).code == 0
    path = Path("ledger/entries/000000.jsonl")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"pass-two", b"pass-one", 1))
    ran = proctor("ledger", "verify")
    assert (ran.code, ran.err, "edited: " in ran.out) == (1, "", True)
    assert json.loads(proctor("ledger", "verify", "--json").out)["damage"][0]["kind"] == "edited"
    path.write_bytes(data)
    next(Path("ledger").rglob("*.zst")).unlink()
    assert "missing-artifact: " in proctor("ledger", "verify").out
    assert proctor("ledger", "verify", "--fast").code == 0
