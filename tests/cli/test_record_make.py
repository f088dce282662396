"""`proctor record make`: what it prints, what it writes, and what it refuses to."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from proctor.record.read import load_record
from tests.audit.directories import COPIED, copy_job, every_job, listing
from tests.cli.programs import Proctor, run_child, run_unprivileged
from tests.exchange.trials import (
    HARBOR,
    SCRIPTED,
    TRIALS,
    copy_trial,
    edit_result,
    find_task,
    write_trajectory,
)
from tests.exchange.trials import make as make_from

VALUE = 'sk-"quoted"\\päss'
ADAPTATION = {
    "family_id": "beams",
    "seed_task_id": "beam",
    "variation_key": "span",
    "variation": {"span": "long"},
}


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    return copy_trial(tmp_path / "jobs")


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record.json"


def make(proctor: Proctor, trial: Path, record: Path, *more: object) -> tuple[int, str, str]:
    ran = proctor("record", "make", trial, "--experiment", "nightly", "-o", record, *more)
    return ran.code, ran.out, ran.err


def test_a_partial_record_says_what_it_lacks(proctor: Proctor, trial: Path, record: Path) -> None:
    code, out, err = make(proctor, trial, record)
    assert (code, err) == (0, "")
    assert out.startswith(f"{record}: partial record of {trial.name}\n")
    assert hashlib.sha256(record.read_bytes()).hexdigest() in out
    assert "to be complete: inputs.input_files is missing; requires --task DIR" in out
    assert load_record(record).record.completeness == "partial"


def test_a_complete_record_passes_check(proctor: Proctor, trial: Path, record: Path) -> None:
    code, out, _ = make(proctor, trial, record, "--task", find_task(trial), "--complete")
    assert code == 0
    assert f"{record}: complete record of {trial.name}" in out
    assert proctor("check", record).code == 0


def test_a_script_gets_everything(
    proctor: Proctor, trial: Path, record: Path, tmp_path: Path
) -> None:
    pins = tmp_path / "pins.json"
    code, out, _ = make(proctor, trial, record, "--json", "--pins", pins)
    document = json.loads(out)
    assert code == 0
    assert document.pop("path") == str(record)
    assert document.pop("sha256") == hashlib.sha256(record.read_bytes()).hexdigest()
    assert document == json.loads(pins.read_text())
    assert document["missing"][0]["field"] == "inputs.input_files"
    assert document["cost_basis"]["kind"] == "reported"
    assert len(document["evidence"]) == sum(path.is_file() for path in trial.rglob("*"))


def test_complete_refuses_what_is_partial_and_writes_nothing(
    proctor: Proctor, trial: Path, record: Path, tmp_path: Path
) -> None:
    pins = tmp_path / "pins.json"
    code, out, err = make(proctor, trial, record, "--complete", "--pins", pins)
    assert (code, out) == (2, "")
    assert "not complete: inputs.input_files is missing (requires --task DIR" in err
    assert not record.exists()
    assert not pins.exists()


def test_a_dash_stands_for_stdout(
    proctor: Proctor, trial: Path, record: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    make(proctor, trial, record)
    code, out, err = make(proctor, trial, Path("-"), "--pins", tmp_path / "pins.json")
    assert (code, out.encode()) == (0, record.read_bytes())
    assert err.startswith(f"-: partial record of {trial.name}\n")
    assert "to be complete: inputs.input_files is missing; requires --task DIR" in err
    assert json.loads((tmp_path / "pins.json").read_text())["trial_id"] == trial.name
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("output", "more", "said"),
    [
        ("-", ("--json",), "--json requires -o FILE: stdout holds one or the other"),
        ("-", ("--pins", "-"), "--pins takes a file; --json prints the pins on stdout"),
        ("record.json", ("--pins", "-"), "--pins takes a file; --json prints the pins on stdout"),
    ],
)
def test_stdout_holds_one_document(
    proctor: Proctor, trial: Path, output: str, more: tuple[str, ...], said: str
) -> None:
    code, out, err = make(proctor, trial, Path(output), *more)
    assert (code, out) == (2, "")
    assert said in err


def test_making_it_again_changes_nothing(
    proctor: Proctor, trial: Path, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "scripted")
    more = ("--pins", tmp_path / "pins.json", "--secret-env", "KEY")
    assert make(proctor, trial, record, *more)[0] == 0
    before = listing(tmp_path)
    assert make(proctor, trial, record, *more)[0] == 0
    assert listing(tmp_path) == before


def test_another_file_is_never_changed(
    proctor: Proctor, trial: Path, record: Path, tmp_path: Path
) -> None:
    record.write_text("mine")
    before = listing(tmp_path)
    for more in ((), ("--pins", tmp_path / "pins.json")):
        code, _, err = make(proctor, trial, record, *more)
        assert code == 2
        assert f"{record}: exists and is not overwritten; remove it or choose another name" in err
        assert listing(tmp_path).keys() == before.keys()
        assert record.read_text() == "mine"


@pytest.mark.parametrize("where", ["pins/is/missing.json", "taken.json", "record.json"])
def test_a_record_is_not_written_without_its_pins(
    proctor: Proctor, trial: Path, record: Path, tmp_path: Path, where: str
) -> None:
    (tmp_path / "taken.json").write_text("mine")
    before = listing(tmp_path)
    code, _, err = make(proctor, trial, record, "--pins", tmp_path / where)
    assert code == 2
    assert str(tmp_path / where) in err
    assert listing(tmp_path) == before


def test_nothing_is_written_into_the_trial(proctor: Proctor, trial: Path, record: Path) -> None:
    before = listing(trial)
    for option in (trial / "record.json", trial / "agent" / ".." / "record.json"):
        code, _, err = make(proctor, trial, option)
        assert code == 2
        assert "proctor does not write into its input" in err
    assert make(proctor, trial, record, "--pins", trial / "pins.json")[0] == 2
    assert listing(trial) == before
    assert not record.exists()


def test_where_nothing_can_be_written_is_said(
    proctor: Proctor, trial: Path, tmp_path: Path
) -> None:
    code, _, err = make(proctor, trial, tmp_path / "missing" / "record.json")
    assert code == 2
    assert "missing/record.json: cannot be written: No such file or directory" in err
    assert make(proctor, trial, tmp_path)[0] == 2


def test_a_directory_that_is_closed_stays_empty(proctor: Proctor) -> None:
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        trial = copy_trial(Path(made))
        closed = Path(made) / "closed"
        closed.mkdir(mode=0o555)
        pins = ("--pins", closed / "pins.json")
        where = ("-o", closed / "record.json")
        ran = run_unprivileged(proctor, "record", "make", trial, "--experiment", "e", *where, *pins)
        assert ran.code == 2
        assert "cannot be written: Permission denied" in ran.err
        assert list(closed.iterdir()) == []


def test_what_is_no_trial(proctor: Proctor, tmp_path: Path, record: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path / "file", "not a directory; expected the directory of a harbor trial"),
        (tmp_path / "gone", "no such directory"),
        (tmp_path / "empty", "neither result.json nor config.json"),
        (COPIED / SCRIPTED, "a job; expected one of the trial directories in it"),
    ):
        code, out, err = make(proctor, path, record)
        assert (code, out) == (2, "")
        assert f"{path}: {why}" in err
        assert "Traceback" not in err
    assert not record.exists()


def test_a_torn_result_is_refused(proctor: Proctor, trial: Path, record: Path) -> None:
    whole = (trial / "result.json").read_bytes()
    (trial / "result.json").write_bytes(whole[: len(whole) // 2])
    code, _, err = make(proctor, trial, record)
    assert code == 2
    assert "result.json: torn or not JSON" in err


def test_a_name_that_no_record_can_have_is_a_sentence(
    proctor: Proctor, trial: Path, record: Path
) -> None:
    edit_result(trial, task_name="")
    code, _, err = make(proctor, trial, record)
    assert code == 2
    assert "task_id: expected text that is not blank" in err


def test_the_wrong_task_is_refused(proctor: Proctor, trial: Path, record: Path) -> None:
    other = HARBOR / "tasks" / "binary" / "oracle-wrong"
    code, _, err = make(proctor, trial, record, "--task", other)
    assert code == 2
    assert "not the task of this trial: its task_checksum is f670348acc" in err
    assert not record.exists()


def test_a_bad_experiment_is_refused(proctor: Proctor, trial: Path, record: Path) -> None:
    ran = proctor("record", "make", trial, "--experiment", "a/b", "-o", record)
    assert ran.code == 2
    assert "experiment is 'a/b'; expected 1 to 200 of the characters" in ran.err


def test_dataset_and_adaptation(
    proctor: Proctor, trial: Path, record: Path, tmp_path: Path
) -> None:
    adaptation = tmp_path / "adaptation.json"
    adaptation.write_text(json.dumps(ADAPTATION))
    more = ("--adaptation", adaptation, "--dataset-id", "beams@2")
    assert make(proctor, trial, record, *more)[0] == 0
    made = load_record(record).record
    assert made.dataset_id == "beams@2"
    assert made.adaptation is not None
    assert made.adaptation.variation == {"span": "long"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "adaptation.json"),
        (json.dumps(ADAPTATION | {"variation": {}}), "variation"),
        (json.dumps(ADAPTATION | {"more": 1}), "unknown key more"),
        (json.dumps({"family_id": "a"}), "is missing"),
    ],
)
def test_a_bad_adaptation_is_refused(
    proctor: Proctor, trial: Path, record: Path, text: str, why: str
) -> None:
    adaptation = record.with_name("adaptation.json")
    adaptation.write_text(text)
    code, _, err = make(proctor, trial, record, "--adaptation", adaptation)
    assert code == 2
    assert why in err
    assert not record.exists()


def test_secrets_are_nowhere(
    proctor: Proctor,
    trial: Path,
    record: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edit_result(
        trial,
        config__agent__model_name=f"acme/{VALUE}",
        config__agent__env={"KEY": VALUE},
        agent_result__metadata={"log": json.dumps({"key": VALUE})},
    )
    said = {"step": 1, "role": "user", "content": VALUE, "media": [f"{VALUE}.png"]}
    write_trajectory(trial, said)
    (trial / "artifacts" / f"{VALUE}.txt").write_text("x")
    monkeypatch.setenv("KEY", VALUE)
    pins = tmp_path / "pins.json"
    code, out, _ = make(proctor, trial, record, "--pins", pins, "--secret-env", "KEY", "--json")
    assert code == 0
    for text in (record.read_text("utf-8"), pins.read_text("utf-8"), out):
        assert "päss" not in text
        assert "p\\u00e4ss" not in text
        assert "quoted" not in text
        assert "[redacted:KEY]" in text
    hidden = json.loads(out)["redactions"]
    assert [(one["name"], one["count"] > 5) for one in hidden] == [("KEY", True)]
    people = make(proctor, trial, record, "--secret-env", "KEY")[1]
    assert f"redacted: KEY {hidden[0]['count']} times" in people
    assert "quoted" not in people


def test_secrets_that_cannot_be_used_are_refused(
    proctor: Proctor, trial: Path, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    monkeypatch.setenv("SHORT", "abc")
    code, _, err = make(proctor, trial, record, "--secret-env", "NO_SUCH_KEY")
    assert code == 2
    assert "--secret-env NO_SUCH_KEY: there is no such environment variable" in err
    code, _, err = make(proctor, trial, record, "--secret-env", "SHORT")
    assert code == 2
    assert "secret SHORT has 3 characters; expected 4 or more" in err
    assert not record.exists()


def test_where_and_when_it_is_made_does_not_matter(trial: Path, tmp_path: Path) -> None:
    made = []
    for zone in ("UTC", "Asia/Kathmandu"):
        target = tmp_path / f"{zone[:3]}.json"
        arguments = ("record", "make", trial, "--experiment", "e", "-o", target)
        assert run_child(*arguments, env={"TZ": zone}).code == 0
        made.append(target.read_bytes())
    assert made[0] == made[1]


def test_a_pipe_as_result_is_not_waited_for(proctor: Proctor, trial: Path, record: Path) -> None:
    (trial / "result.json").unlink()
    os.mkfifo(trial / "result.json")
    assert make(proctor, trial, record)[0] == 2


@every_job
def test_rewards_and_tokens_are_those_that_score_gives(proctor: Proctor, name: str) -> None:
    ran = proctor("score", "--json", COPIED / name)
    stats = json.loads(ran.out)["stats"]
    expected: dict[str, dict[str, str]] = {}
    for group in stats["evals"].values():
        for key, values in group["reward_stats"].items():
            for value, trials in values.items():
                for trial in trials:
                    expected.setdefault(trial, {})[key] = value
    made = [make_from(path) for path in TRIALS if path.parent.name == name]
    for one in made:
        rewards = expected.get(one.record.trial_id)
        breakdown = one.record.evaluation.breakdown
        assert (breakdown is None or breakdown == {}) == (rewards is None)
        for key, value in (rewards or {}).items():
            assert breakdown is not None
            assert repr(float(breakdown[key])) == repr(float(value))
        assert repr(one.record.evaluation.reward) == repr(expected_reward(rewards))
    tokens = [one.record.cost.tokens_in for one in made if one.record.cost]
    assert sum(count or 0 for count in tokens) == (stats["n_input_tokens"] or 0)


def expected_reward(rewards: dict[str, str] | None) -> float | None:
    if rewards is None or ("reward" not in rewards and len(rewards) > 1):
        return None
    value = float(rewards.get("reward", next(iter(rewards.values()))))
    return value if math.isfinite(value) else None


def test_nothing_is_written_into_what_is_read(proctor: Proctor, tmp_path: Path) -> None:
    job = copy_job("04-binary-scripted-k5", tmp_path)
    task = tmp_path / "task"
    shutil.copytree(HARBOR / "tasks" / "binary" / "pass-simple", task)
    trial = job / "pass-simple__35oQqES"
    for place in (job, trial, task, task / "tests"):
        target = place / "record.json"
        for options in (["-o", target], ["-o", tmp_path / "r.json", "--pins", target]):
            ran = proctor("record", "make", trial, "--experiment", "e", "--task", task, *options)
            assert (ran.code, ran.out) == (2, "")
            assert "proctor does not write into its input" in ran.err
            assert not target.exists()
            assert not (tmp_path / "r.json").exists()


def test_of_two_at_once_one_record_stays(tmp_path: Path) -> None:
    trial = COPIED / "04-binary-scripted-k5" / "pass-simple__35oQqES"
    program = [sys.executable, "-m", "proctor", "record", "make", str(trial), "-o", "r.json"]
    for _ in range(4):
        runs = [
            subprocess.Popen(
                [*program, "--experiment", name],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in ("one", "two")
        ]
        ends = [(run.communicate(), run.returncode) for run in runs]
        codes = sorted(code for _, code in ends)
        assert codes == [0, 2]
        won = ("one", "two")[[code for _, code in ends].index(0)]
        assert json.loads((tmp_path / "r.json").read_text())["experiment_id"] == won
        (tmp_path / "r.json").unlink()
