"""`proctor outcome`: the result line, its reader, reason codes."""

import io
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from proctor.record.reasons import ReasonCode
from tests.audit.directories import COPIED, JOBS, NAMES, copy_job, listing
from tests.cli.programs import Proctor, command_line, environment, run_child

ENDED = ("--exit-code", "0")
BINARY = COPIED / "01-binary-oracle-k1"
LINE = (
    'BASE_BENCHMARK_RESULT={"reason_code": null, "resolved": 2, "score": 0.6666666666666666, '
    '"status": "completed", "total": 3}'
)

MISSING = (
    'BASE_BENCHMARK_RESULT={"reason_code": "harbor_result_missing", "resolved": 0, "score": 0.0, '
    '"status": "failed", "total": 0}\n'
)


@pytest.mark.parametrize("thing", [BINARY, BINARY / "result.json"])
def test_the_line_is_on_stdout_and_its_reading_on_stderr(proctor: Proctor, thing: Path) -> None:
    ran = proctor("outcome", thing)
    assert (ran.code, ran.out) == (0, f"{LINE}\n")
    reading = "agent-challenge reads it (exit code 0) as: completed, score 0.6666666666666666"
    assert ran.err == f"{reading}\n"


def test_resolved_is_explained_where_it_was_rounded(proctor: Proctor, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(
        '{"n_total_trials": 2, "stats": {"evals": {"a": {"metrics": [{"mean": 0.75}]}}}}'
    )
    ran = proctor("outcome", tmp_path / "result.json")
    assert '"resolved": 2, "score": 0.75' in ran.out
    assert ran.err.splitlines()[1] == (
        "resolved is score x total, rounded (0.75 x 2 = 1.5, so 2); it is not a count of passed "
        "trials"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_job_has_one_line(proctor: Proctor, name: str) -> None:
    before = listing(JOBS / name)
    ran = proctor("outcome", JOBS / name)
    assert ran.code == 0
    assert ran.out.count("BASE_BENCHMARK_RESULT=") == ran.out.count("\n") == 1
    assert listing(JOBS / name) == before


def test_a_script_gets_line_summary_and_reading(proctor: Proctor) -> None:
    document = json.loads(proctor("outcome", BINARY, "--json").out)
    assert document["line"] == LINE
    assert document["summary"]["resolved"] == 2
    assert document["reader"]["status"] == "completed"


def test_a_job_without_result_has_a_line_that_says_so(proctor: Proctor, tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    (job / "result.json").unlink()
    assert '"reason_code": "harbor_result_missing"' in proctor("outcome", job).out
    (job / "result.json").write_text("{")
    assert '"reason_code": "harbor_result_malformed"' in proctor("outcome", job).out


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--exit-code", "0"], "completed, score 0.6666666666666666"),
        (["--exit-code", "1"], "failed, score 0.0, reason harbor_nonzero_exit"),
        (["--exit-code", "0", "--timed-out"], "timed_out, score 0.0, reason timed_out"),
    ],
)
def test_a_run_is_judged_by_stdout_and_how_it_ended(
    proctor: Proctor, tmp_path: Path, arguments: list[str], answer: str
) -> None:
    stdout = tmp_path / "stdout.txt"
    stdout.write_text(f"noise\n{LINE}\n")
    ran = proctor("outcome", "--stdout", stdout, *arguments)
    assert (ran.code, ran.out) == (0, f"{answer}\n")
    document = json.loads(proctor("outcome", "--stdout", stdout, *arguments, "--json").out)
    assert document["status"] == answer.partition(",")[0]


def test_a_run_can_be_read_from_standard_input() -> None:
    ran = run_child("outcome", "--stdout", "-", "--exit-code", "0", stdin=f"{LINE}\n")
    assert (ran.code, ran.out) == (0, "completed, score 0.6666666666666666\n")


def test_standard_input_is_read_as_bytes(proctor: Proctor, monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO(b"\xff\n" + LINE.encode()))
    monkeypatch.setattr("sys.stdin", given)
    assert proctor("outcome", "--stdout", "-", "--exit-code", "0").out.startswith("completed")


def test_output_that_is_no_text_is_read_all_the_same(proctor: Proctor, tmp_path: Path) -> None:
    stdout = tmp_path / "stdout.txt"
    stdout.write_bytes(b"\xff\xfe\n" + LINE.encode())
    ran = proctor("outcome", "--stdout", stdout, "--exit-code", "0")
    assert ran.out.startswith("completed")


def test_a_missing_stdout_file_is_refused(proctor: Proctor) -> None:
    ran = proctor("outcome", "--stdout", "absent", "--exit-code", "0")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "proctor: absent: cannot be read: No such file or directory; expected the stdout of a run\n"
    )


def test_a_closed_standard_input_is_refused() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command_line("outcome", "--stdout", "-", *ENDED)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "proctor: standard input: closed; expected the stdout of a run\n"


def test_a_reason_is_named_with_the_rule_that_says_so(proctor: Proctor) -> None:
    ran = proctor("outcome", "--reason", "harbor_reward_missing")
    assert ran.code == 0
    assert "harbor_reward_missing" in ran.out
    document = json.loads(proctor("outcome", "--reason", "docker pull failed", "--json").out)
    assert set(document) == {"text", "code", "known", "rule", "why", "retry"}
    assert document["text"] == "docker pull failed"


def test_an_unknown_reason_is_said_to_be_unknown(proctor: Proctor) -> None:
    document = json.loads(proctor("outcome", "--reason", "qwertz", "--json").out)
    assert document["known"] is False
    assert "qwertz" in proctor("outcome", "--reason", "qwertz").out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [BINARY, "--reason", "x"],
        ["--stdout", "x", "--reason", "y"],
    ],
)
def test_exactly_one_thing_is_asked_for(proctor: Proctor, arguments: list[object]) -> None:
    ran = proctor("outcome", *arguments)
    assert ran.code == 2
    assert "give one of: a job or result.json, --stdout FILE, --reason TEXT" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([BINARY, "--exit-code", 5, "--timed-out"], "--exit-code requires --stdout"),
        ([BINARY, "--timed-out"], "--timed-out requires --stdout"),
    ],
)
def test_an_option_of_another_mode_is_refused(
    proctor: Proctor, arguments: list[object], message: str
) -> None:
    ran = proctor("outcome", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(f"Error: {message}\n")


def test_a_run_is_not_judged_without_its_exit_code(proctor: Proctor) -> None:
    ran = proctor("outcome", "--stdout", "x")
    assert ran.code == 2
    assert "--stdout needs --exit-code" in ran.err


def test_a_result_alone_is_enough_for_a_line(proctor: Proctor, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes((BINARY / "result.json").read_bytes())
    assert proctor("outcome", tmp_path).out == f"{LINE}\n"
    (tmp_path / "result.json").write_text("{")
    assert '"reason_code": "harbor_result_malformed"' in proctor("outcome", tmp_path).out


@pytest.mark.parametrize("sign", ["trial.log", "verifier"])
def test_the_result_of_a_trial_has_no_line(proctor: Proctor, tmp_path: Path, sign: str) -> None:
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / sign).mkdir()
    ran = proctor("outcome", tmp_path)
    assert (ran.code, ran.out) == (2, MISSING)
    assert "this is one trial; expected the job directory around it" in ran.err


def test_what_is_neither_job_nor_result_has_a_line_that_says_so(
    proctor: Proctor, tmp_path: Path
) -> None:
    ran = proctor("outcome", tmp_path)
    assert (ran.code, ran.out) == (2, MISSING)
    assert "empty directory; expected a Harbor job" in ran.err
    ran = proctor("outcome", tmp_path / "absent")
    assert (ran.code, ran.out) == (2, MISSING)
    assert "expected a job directory or its result.json" in ran.err
    ran = proctor("outcome", tmp_path / "absent", "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["summary"]["reason_code"] == "harbor_result_missing"


def test_the_closed_set_of_codes_is_listed(proctor: Proctor) -> None:
    lines = [line.split() for line in proctor("outcome", "--codes").out.splitlines()]
    assert [code for code, _ in lines] == list(ReasonCode)
    assert Counter(kind for _, kind in lines) == {"retryable": 6, "final": 14, "sentinel": 5}
    listed = json.loads(proctor("outcome", "--codes", "--json").out)["codes"]
    assert [[each["code"], each["kind"]] for each in listed] == lines
    assert proctor("outcome", "--codes", "--reason", "x").code == 2
