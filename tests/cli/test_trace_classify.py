"""`proctor trace classify`: one trial by its turns, many by their shares, judges beside rules."""

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from proctor.digest import sha256_hex
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.ledger.sealing import seal
from tests.agents.chat.server import Connection, refuses, serving
from tests.cli.programs import Proctor, command_line, environment
from tests.ledger.ledgers import make_ledger
from tests.ledger.trials import open_ledger, seal_files
from tests.record.samples import DATA
from tests.task.trees import JOBS
from tests.traces.judges import judges, label_all, steps_asked

LABELLED = Path(__file__).parent.parent / "data" / "labelled-turns" / "development"
TRACE = LABELLED / "cmake-link.jsonl"
JOB = JOBS / "42-config-multi"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-some-key-for-this")
    monkeypatch.setenv("COLUMNS", "80")


def test_one_trace_is_shown_turn_by_turn_in_80_columns(proctor: Proctor) -> None:
    ran = proctor("trace", "classify", TRACE)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[1] == "trajectory cmake-link.jsonl; labels by rules 1"
    assert "    4  execution     0.65  writes                    bash: cd /app && sed" in ran.out
    assert lines[-2].startswith("10 turns: execution 30.0%, verification 30.0%")
    assert all(len(line) <= 80 for line in lines[1:])


def test_a_job_is_shown_by_shares_and_says_who_left_no_trace(proctor: Proctor) -> None:
    ran = proctor("trace", "classify", JOB)
    assert ran.code == 3
    assert "48 trials, 24 with labels, 48 turns: execution 100.0%" in ran.out
    assert "no trace: no trajectory" in ran.out
    assert "most frequent label: execution in 24" in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines())


def test_the_json_document_has_every_label_and_their_counts(proctor: Proctor) -> None:
    ran = proctor("trace", "classify", TRACE, LABELLED / "go-race.jsonl", "--json")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert found["classifier"] == {"kind": "rules", "rules_version": "1"}
    first = found["trials"][0]
    assert first["labels"][3] == {
        "part": "",
        "step": 4,
        "label": "execution",
        "confidence": 0.65,
        "cue": "writes",
        "action": first["labels"][3]["action"],
    }
    assert (first["turns"], first["dominant"]) == (10, "execution")
    assert found["together"]["turns"] == 20
    assert (found["judges"], found["agreements"]) == ([], [])


def test_one_damaged_trace_does_not_hide_the_labels_of_the_others(
    proctor: Proctor, tmp_path: Path
) -> None:
    trace = '{"step": 1, "role": "assistant", "content": "%s"}\n'
    with open_ledger(tmp_path) as ledger:
        for name in ("good", "bad"):
            seal_files(ledger, name, {"agent/trajectory.jsonl": (trace % name).encode()})
    packed = (tmp_path / "ledger" / "artifacts").rglob(f"*{sha256_hex((trace % 'bad').encode())}*")
    next(packed).write_bytes(b"no archive")
    ran = proctor("trace", "classify", "--ledger", tmp_path / "ledger")
    assert ran.code == 3
    assert "2 trials, 1 with labels, 1 turn" in ran.out
    assert "experiment-001/bad" in ran.out


def test_sealed_trials_are_chosen_by_filters(proctor: Proctor, tmp_path: Path) -> None:
    (trial,) = sorted((JOBS / "16-agent-nonzero").glob("pass-simple__*"))
    with make_ledger(tmp_path) as ledger:
        seal(ledger, list(find_submissions(trial, SealOptions(experiment="night"))))
    sealed = ("--ledger", tmp_path / "ledger", "--where")
    ran = proctor("trace", "classify", *sealed, "task=pass")
    assert ran.code == 0
    assert ran.out.startswith(f"night/{trial.name}\nATIF trajectory agent/trajectory.json; labels")
    none = proctor("trace", "classify", *sealed, "task=nothing-like-it")
    assert (none.code, none.out) == (2, "")
    assert "no trial matches the filters" in none.err


@pytest.mark.parametrize("name", ["anthropic", "canonical", "openai", "pydantic-ai-1.0.0"])
def test_a_conversation_of_any_dialect_is_labelled(proctor: Proctor, name: str) -> None:
    ran = proctor("trace", "classify", DATA.parent / "conversations" / f"{name}.jsonl", "--json")
    assert ran.code == 0
    [trial] = json.loads(ran.out)["trials"]
    assert trial["sources"] == [f"conversation {name}.jsonl"]
    assert trial["turns"] > 0


def test_hostile_text_is_harmless(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    text = "\x1b]0;owned\x07 \x1b[2J<b>\r\u202e"
    rows = [
        {"step": 1, "role": "tool_call", "tool_name": text, "command": text * 50},
        {"step": 2, "role": "assistant", "content": text},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ran = proctor("trace", "classify", path)
    assert ran.code == 0
    assert not set("\x1b\x07\r\u202e") & set(ran.out)
    assert all(len(line) <= 80 for line in ran.out.splitlines()[1:])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "there is no such file"),
        ([LABELLED / "labels.jsonl"], "no trace: no trajectory"),
        ([TRACE, "--judge", "m"], "--judge needs --judge-url"),
        ([TRACE, "--agree"], "--agree requires --judge"),
        ([TRACE, "--judge", "m", "--judge-url", "ftp://x"], "--judge-url is 'ftp://x'"),
        (
            [TRACE, "--judge", "m", "--judge-url", "http://x", "--judge-key-env", "NO_SUCH_KEY"],
            "NO_SUCH_KEY is not set",
        ),
        (
            [TRACE, "--judge", "m", "--judge", "m", "--judge-url", "http://x"],
            "the same model at the same endpoint twice",
        ),
        (
            [TRACE, "--judge", "m", "--judge-url", "http://x", "--judge-url", "http://y"],
            "--judge-url is given 2 times for 1 judge",
        ),
    ],
)
def test_what_cannot_be_done_is_said(proctor: Proctor, arguments: list[Any], said: str) -> None:
    ran = proctor("trace", "classify", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_judges_labels_are_shown_and_compared_with_the_rules(proctor: Proctor) -> None:
    with serving(judges(label_all("execution"))) as server:
        ask = ("trace", "classify", TRACE, "--judge", "gpt-4o", "--judge-url", server.url)
        ran = proctor(*ask, "--agree")
        again = proctor(*ask, "--json")
    assert ran.code == 0
    assert "labels by judge gpt-4o" in ran.out
    assert "3 of 10 turns agree, kappa 0" in ran.out
    assert "tokens 200 in, 20 out; $0." in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines()[1:])
    assert len(server.asked) == 2
    [judge] = json.loads(again.out)["judges"]
    assert (judge["known_from_before"], judge["requests"], judge["cost_usd_now"]) == (10, 0, 0.0)
    assert judge["cost_usd"] > 0
    assert (judge["prompt_version"], judge["answered_by"]) == ("1", ["gpt-4o-2024-08-06"])


def test_two_judges_are_compared_with_each_other(proctor: Proctor) -> None:
    with serving(judges(label_all("execution"))) as one, serving(judges(label_all("x"))) as other:
        urls = ("--judge-url", one.url, "--judge-url", other.url)
        ran = proctor("trace", "classify", TRACE, "--judge", "a", "--judge", "b", *urls, "--agree")
    assert ran.code == 3
    assert "judge b (answered by gpt-4o-2024-08-06), prompt 1:" in ran.out
    assert "10 turns unlabelled" in ran.out
    assert "judge a (rows) and judge b (columns): 0 of 0 turns agree, kappa not defined" in ran.out


def test_a_refused_key_is_told_in_the_words_of_this_command(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_JUDGE_KEY", "sk-the-wrong-one")
    with serving(refuses(401, "bad key")) as server:
        options = ("--judge", "m", "--judge-url", server.url, "--judge-key-env", "MY_JUDGE_KEY")
        ran = proctor("trace", "classify", TRACE, *options)
    assert (ran.code, ran.out) == (2, "")
    assert "HTTP 401: bad key; is MY_JUDGE_KEY the key of this endpoint?" in ran.err
    assert "sk-the-wrong-one" not in ran.err
    assert server.asked[0].headers["authorization"] == "Bearer sk-the-wrong-one"


def test_a_judgement_that_was_killed_goes_on_where_it_was(proctor: Proctor) -> None:
    came = threading.Event()

    def hang(connection: Connection) -> None:
        came.set()
        connection.server.released.wait()

    asked = ("trace", "classify", TRACE, "--json", "--judge", "m", "-n", "1", "--judge-url")
    with serving(judges(label_all()), hang) as server:
        child = subprocess.Popen(
            command_line(*asked, server.url), env=environment(), stdout=subprocess.DEVNULL
        )
        assert came.wait(60)
        child.send_signal(signal.SIGKILL)
        child.wait()
    with serving(judges(label_all())) as server:
        ran = proctor(*asked, server.url)
    [judge] = json.loads(ran.out)["judges"]
    assert (judge["known_from_before"], judge["turns"]) == (5, 10)
    assert steps_asked([each.body for each in server.asked]) == [[6, 7, 8, 9, 10]]
