"""What a sealed trial is found by, and what of it is not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.cli.search import step_options
from proctor.ledger.api import Ledger
from proctor.search import texts
from proctor.search.find import Page
from proctor.search.row import LONGEST, is_change
from tests.ledger.ledgers import artifact_path
from tests.ledger.trials import open_ledger, seal_files
from tests.search.ledgers import TRACE, anchors, ask, gave, lines, ran, said, seal_trace
from tests.trial.changed import change, changes

type Sealing = Callable[[dict[str, bytes]], Path]


@pytest.fixture
def sealed(tmp_path: Path) -> Sealing:
    """A ledger whose one trial has these files."""

    def make(files: dict[str, bytes]) -> Path:
        with open_ledger(tmp_path) as ledger:
            changes = {"inputs.instruction": "Mend the gearbox."}
            changes |= {"outputs.agent_output.output_path": "artifacts/answer.md"}
            changes |= {"outputs.agent_output.error_message": "ran out of oil"}
            seal_files(ledger, "one", files, **changes)
        return tmp_path / "ledger"

    return make


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("gearbox", "one#None instruction"),
        ("oil", "one#None exception"),
        ("timeout", "one#None exception"),
        ("assertion", "one#None verifier"),
        ("torque", "one#None answer"),
        ("wrench", "one#3 tool_call"),
        ("42", "one#3 tool_call"),
        ("whisper", "one#3 assistant"),
        ("stderr", "one#3 tool_result"),
        ("1.0", ""),
        ("binary", ""),
    ],
)
def test_it_is_found_by(sealed: Sealing, query: str, found: str) -> None:
    thought = {"conversation": {"thinking": "I whisper"}}
    call = {**ran("", 3, "edit"), "arguments": {"deep": [{"tool": "wrench"}], "size": 42}}
    ledger = sealed(
        {
            TRACE: lines(
                said("Now.", 3, metadata=thought), call, {**gave("", 0, 3), "stderr": "to stderr"}
            ),
            "exception.txt": b"AgentTimeout: timeout",
            "verifier/test-stdout.txt": b"assertion failed",
            "verifier/reward.txt": b"1.0",
            "verifier/core": b"binary \0 data",
            "artifacts/answer.md": b"The torque is right.",
        }
    )
    assert anchors(ask(ledger, query)) == ([found] if found else [])


def test_a_conversation_is_found_by_the_steps_that_show_has(sealed: Sealing) -> None:
    turns = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "first"},
        {"role": "assistant", "content": "needle"},
    ]
    ledger = sealed({"agent/conversation.jsonl": "".join(map(_line, turns)).encode()})
    assert anchors(ask(ledger, "needle")) == ["one#2 assistant"]


def test_harbors_own_trace_is_found(sealed: Sealing) -> None:
    step = {"step_id": 1, "source": "agent", "message": "needle", "reasoning_content": "hunch"}
    atif = {
        "schema_version": "ATIF-v1.5",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": [step],
    }
    ledger = sealed({"agent/trajectory.json": json.dumps(atif).encode()})
    assert anchors(ask(ledger, "needle hunch")) == ["one#1 assistant"]


def test_what_is_beyond_a_mebibyte_of_one_entry_is_not_found(sealed: Sealing) -> None:
    text = "early " + "x" * LONGEST + " late"
    ledger = sealed({TRACE: lines(said(text), said("later", 2))})
    assert [ask(ledger, word).matches for word in ("early", "late", "later")] == [1, 0, 1]


def test_paths_that_the_agent_changed_are_found_the_system_first(
    sealed: Sealing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "_MOST_PATHS", 3)
    first = changes(
        *(change(f"/app/work{number}") for number in range(3)),
        change("/usr/bin/python", place="system", kind="link", target="/opt/fake"),
        change("/app/late", when="verification"),
    )
    files = {"steps/a/changes.jsonl": first, "steps/b/changes.jsonl": changes(change("/app/more"))}
    ledger = sealed(files)
    (hit,) = ask(ledger, "role:change /usr/bin/python").hits
    assert hit.row.text == "/usr/bin/python -> /opt/fake\n/app/work0\n/app/work1"
    assert (hit.row.part, hit.row.step, is_change(hit.row)) == ("a", None, True)
    assert step_options(hit.row) == ["--changes", "--part", "a"]
    assert [ask(ledger, word).matches for word in ("fake", "work2", "late", "more")] == [1, 0, 0, 0]


def test_a_strangers_change_record_does_no_harm(sealed: Sealing) -> None:
    line = change("\ue000rverifier \x1b[2J /etc/needle")
    ledger = sealed({"changes.jsonl": changes(line) + b'{"path": "\\ud800"}\n\xff\n5\n'})
    assert anchors(ask(ledger, "needle")) == ["one#None change"]
    assert ask(ledger, "role:verifier").matches == 0


def test_lies_about_steps_and_codes_do_no_harm(sealed: Sealing) -> None:
    big = 10**30
    broken = b'{"role": "a\\ud800\\u0000", "step": 1, "content": "half \\ud800 \\u0000 needle"}\n'
    ledger = sealed({TRACE: broken + lines(said("needle", big), gave("needle", -big, big, None))})
    assert ask(ledger, "needle").matches == 3
    assert ask(ledger, "needle exit:!0").matches == 1


def test_a_text_cannot_pass_for_a_tag(sealed: Sealing) -> None:
    ledger = sealed({TRACE: lines(said("\ue000rverifier \ue001cpp"))})
    assert [ask(ledger, query).matches for query in ("role:verifier", "C++")] == [0, 0]


def test_accents_make_no_difference(sealed: Sealing) -> None:
    ledger = sealed({TRACE: lines(said("un café déjà vu"))})
    assert [ask(ledger, query).matches for query in ("cafe", "CAFÉ", '"deja vu"')] == [1, 1, 1]


def test_results_have_the_tool_and_calls_the_exit_code_of_their_pair(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        trace = (ran("first"), ran("second"), gave("one", 3, tool=None), gave("two", 0, tool=None))
        seal_trace(ledger, "one", *trace)
    found = [ask(tmp_path / "ledger", query).hits[0].row for query in ("first", "second", "one")]
    assert [(row.tool, row.exit_code) for row in found] == [("bash", 3), ("bash", 0), ("bash", 3)]


def test_reviews_and_notes_are_found(tmp_path: Path) -> None:
    with open_ledger(tmp_path, "one") as ledger:
        ledger.review(ledger.find("one"), verdict="fail", reviewer="ana", note="a flawed needle")
    (hit,) = ask(tmp_path / "ledger", "role:review needle").hits
    assert (hit.trial_id, hit.seq) == (None, 2)


def test_evidence_that_is_damaged_is_named_and_the_rest_is_found(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_trace(ledger, "bad", said("lost needle"))
        seal_trace(ledger, "good", said("needle"))
        digest = _evidence(ledger, "bad")
        artifact_path(ledger, digest).write_bytes(b"no archive")
    assert anchors(ask(tmp_path / "ledger", "needle")) == ["good#1 assistant"]


def test_the_newest_come_first_page_by_page_and_all_are_counted(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        for trial in ("a", "b", "c"):
            seal_trace(ledger, trial, said("needle", 1), said("needle", 2))
    pages = [ask(tmp_path / "ledger", "needle", Page(limit=4, number=at)) for at in (1, 2, 3)]
    assert [anchors(page) for page in pages] == [
        [f"{at} assistant" for at in ("c#2", "c#1", "b#2", "b#1")],
        ["a#2 assistant", "a#1 assistant"],
        [],
    ]
    assert {(page.matches, page.trials, page.is_exact) for page in pages} == {(6, 3, True)}


def test_the_most_relevant_come_first_when_asked_for(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_trace(ledger, "dense", said("needle needle needle"))
        seal_trace(ledger, "thin", said("needle " + "hay " * 200))
    found = ask(tmp_path / "ledger", "needle", Page(by_relevance=True))
    assert anchors(found) == ["dense#1 assistant", "thin#1 assistant"]


def test_more_matches_than_are_counted_are_said_to_be_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.search.find.COUNTED", 5)
    with open_ledger(tmp_path) as ledger:
        seal_trace(ledger, "one", *(said("needle", at) for at in range(9)))
    place = tmp_path / "ledger"
    found = [ask(place, "needle", Page(limit=2, exact=exact)) for exact in (False, True)]
    assert [(each.matches, each.is_exact) for each in found] == [(5, False), (9, True)]


def test_an_exit_code_that_only_the_output_names_is_found_too(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        told = (gave("no\n[exit code: 7]", None), gave("yes\n[exit code: 0]", None, 2))
        seal_trace(ledger, "told", ran("make"), told[0], ran("make", 2), told[1])
    hits = anchors(ask(tmp_path / "ledger", "exit:!0"))
    assert sorted(hits) == ["told#1 tool_call", "told#1 tool_result"]
    assert anchors(ask(tmp_path / "ledger", "exit:7")) == hits


def _line(turn: object) -> str:
    return f"{json.dumps(turn)}\n"


def _evidence(ledger: Ledger, trial: str) -> str:
    entry = ledger.entry(ledger.find(trial).seq)
    digest: str = entry.evidence[0].sha256  # type: ignore[union-attr]
    return digest
