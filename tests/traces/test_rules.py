"""The rules: one label per turn, by what it says and does, the same for the same entries."""

import string
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.traces.entry import Entry
from proctor.traces.label_rules import Classifier, classify
from proctor.traces.labels import LABELS
from proctor.traces.turn import ToolCall, Turn, turns_to_entries
from tests.examples import examples
from tests.traces.labelled import measure

LABELLED = Path(__file__).parent.parent / "data" / "labelled-turns"


def says(text: str, step: int = 1) -> Entry:
    return Entry(role="assistant", step=step, content=text)


def runs(command: str, step: int = 1, exit_code: int = 0) -> list[Entry]:
    return [
        Entry(role="tool_call", step=step, tool_name="bash", command=command),
        Entry(role="tool_result", step=step, tool_name="bash", stdout="x", exit_code=exit_code),
    ]


def labels_of(*commands: str) -> list[str]:
    """The labels of turns that only run commands, with closing words after them."""
    entries = [entry for step, command in enumerate(commands, 1) for entry in runs(command, step)]
    found = classify([*entries, says("Done.", len(commands) + 1)])
    return [label.label for label in found[:-1]]


def test_every_turn_has_one_label_by_step() -> None:
    entries = [
        Entry(role="user", step=0, content="task"),
        Entry(role="assistant", step=0, content="not a turn"),
        Entry(role="assistant", step=1, content="warm", call_type="warmup"),
        Entry(role="user", step=2, content="not a turn either"),
        says("third", 5),
        *runs("ls", 3),
        says("second", 4),
        says("again", 4),
    ]
    assert [label.step for label in classify(entries)] == [3, 4, 5]


def test_a_step_that_comes_back_keeps_its_label() -> None:
    entries = [*runs("ls", 1), *runs("rm -r x", 2), *runs("make", 1)]
    found = classify(entries)
    assert [(label.step, label.label) for label in found] == [(1, "exploration"), (2, "execution")]


def test_nothing_has_no_labels() -> None:
    assert classify([]) == ()


@pytest.mark.parametrize(
    ("commands", "last"),
    [
        (["ls -la && cat README.md"], "exploration"),
        (["pytest -q"], "exploration"),
        (["sed -i s/a/b/ x.py", "pytest -q 2>&1 | tail -3"], "verification"),
        (["sed -i s/a/b/ x.py", "cd /app && git diff"], "verification"),
        (["echo 1 > out.txt", "cat out.txt"], "verification"),
        (["echo 1 > out.txt", "cat other.txt"], "exploration"),
        (["make app", "sed -i s/a/b/ x.c", "make app"], "verification"),
        (["make app"], "execution"),
        (["pip install flask"], "execution"),
        (
            ["cat > f.py <<'E'\ndef f(): ...\nE", "python3 -c 'import f; print(f.f())'"],
            "verification",
        ),
        (["cat > s.sh <<'E'\npytest; diff a b\nE"], "execution"),
        (["./server &", "curl -s localhost:8080/health"], "verification"),
        (["curl -s localhost:8080/health"], "exploration"),
        (["make train > log", "sleep 60; tail log"], "execution"),
        (["git commit -qm 'Check, verify, maybe'"], "execution"),
        (["sudo timeout 5 env A=1 python3 -m pytest"], "exploration"),
        (["head x 2>/dev/null"], "exploration"),
        (["sed -i s/a/b/ x.py && pytest -q"], "verification"),
        (["nginx -t && nginx"], "execution"),
        (["touch a", "bash -lc 'cd /app && pytest -q'"], "verification"),
        (["/bin/sh -c 'ls -l'"], "exploration"),
        (["sqlite3 a.db 'select 1 from t'"], "exploration"),
        (["sqlite3 a.db 'create table t (x)'"], "execution"),
        ([""], "execution"),
    ],
)
def test_commands_are_labelled_by_what_came_before(commands: list[str], last: str) -> None:
    assert labels_of(*commands)[-1] == last


PLAN = (
    "The parser must change first because the lexer feeds it, then the cache can be dropped, since "
    "nothing else reads it; therefore two files are enough and the order is parser, then cache."
)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (PLAN, "deliberation"),
        ("Perhaps the lexer, or maybe the cache? Either could be it.", "exploration"),
        ("Which of the two do you want?", "exploration"),
        (
            "The value is wrong: I missed the sign. It does not match the expected 3.",
            "verification",
        ),
        ("On it.", "execution"),
    ],
)
def test_words_without_an_action_are_labelled_by_their_cues(text: str, label: str) -> None:
    entries = [*runs("echo 1 > a", 1), says(text, 2), *runs("true", 3)]
    assert classify(entries)[1].label == label


def test_closing_words_are_execution_whatever_they_say() -> None:
    closing = says("All tests pass as expected. Maybe you want more? I could check either.", 2)
    assert classify([*runs("echo 1 > a", 1), closing])[-1].label == "execution"


def test_thinking_counts_as_text() -> None:
    thought = "Perhaps it is the cache, or maybe the lexer? Not sure."
    turn = Turn(
        line=1,
        role="assistant",
        thinking=thought,
        calls=(ToolCall(name="bash", arguments={"command": "make"}),),
    )
    [label] = classify(turns_to_entries([turn]))
    assert (label.label, label.cue) == ("exploration", "weighs or guesses")


@pytest.mark.parametrize(
    ("tool", "arguments", "label"),
    [
        ("Read", {"file_path": "/a/b.py"}, "exploration"),
        ("str_replace_editor", {"command": "view", "path": "/a"}, "exploration"),
        ("str_replace_editor", {"command": "create", "path": "/a"}, "execution"),
        ("apply_patch", {"input": "*** Update File: a.py"}, "execution"),
        ("Bash", {"command": "ls"}, "exploration"),
        ("shell", {"cmd": ["ls", "-l"]}, "exploration"),
        ("sql", {"query": "SELECT 1"}, "exploration"),
        ("sql", {"query": "DROP TABLE t"}, "execution"),
        ("python", {"code": "open('x', 'w').write('1')"}, "execution"),
        ("think", {"thought": "hm"}, "deliberation"),
        ("submit_answer", {"answer": "42"}, "execution"),
        ("", {"x": [1]}, "execution"),
    ],
)
def test_tools_are_known_by_name_and_arguments(
    tool: str, arguments: dict[str, object], label: str
) -> None:
    call = Entry(role="tool_call", step=1, tool_name=tool, arguments=arguments)
    assert classify([call, says("Done.", 2)])[0].label == label


words = st.text(alphabet=string.printable + "é€\u2028\x1b", max_size=60)
entries = st.builds(
    Entry,
    role=st.sampled_from(["system", "user", "assistant", "tool_call", "tool_result", "odd", ""]),
    step=st.integers(0, 6),
    content=st.none() | words,
    tool_name=st.none() | st.sampled_from(["bash", "edit_file", "python", "sql", "think"]) | words,
    command=st.none() | words,
    arguments=st.none()
    | st.dictionaries(
        st.sampled_from(["command", "path", "code", "query", "cmd"]),
        st.none() | words | st.integers() | st.lists(words),
    ),
    exit_code=st.none() | st.integers(),
    metadata=st.none() | st.just({"conversation": {"thinking": 1}, "atif": []}),
    call_type=st.none() | st.just("warmup"),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(entries, max_size=12))
def test_every_turn_of_any_entries_has_a_label(trace: list[Entry]) -> None:
    whole = classify(trace)
    classifier = Classifier()
    for entry in trace:
        classifier.add(entry)
    assert classifier.count() == Counter(label.label for label in whole)
    turns = {
        entry.step
        for entry in trace
        if entry.role in ("assistant", "tool_call") and entry.step and entry.call_type is None
    }
    assert [label.step for label in whole] == sorted(turns)
    assert all(label.label in LABELS and 0.5 <= label.confidence <= 0.95 for label in whole)
    assert all(label.cue.isascii() and label.cue.isprintable() for label in whole)


@pytest.mark.parametrize(
    ("half", "turns", "right"), [("development", 142, 128), ("held-out", 134, 107)]
)
def test_the_rules_are_as_good_as_the_documents_say(half: str, turns: int, right: int) -> None:
    measured = measure(LABELLED / half)
    assert (len(measured.turns), measured.agreement.agreed) == (turns, right)
