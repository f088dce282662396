"""`proctor search`, as people and programs see it."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.ledger.trials import open_ledger, seal_files
from tests.search.ledgers import gave, lines, make_searched, ran, said, seal_trace
from tests.trial.changed import change, changes


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = make_searched(tmp_path)
    monkeypatch.setenv("PROCTOR_LEDGER", str(place))
    monkeypatch.setenv("COLUMNS", "80")
    return place


SHOWN = """\
2 matches in 2 trials, newest first

experiment-001/worked --step 1  tool_call bash  exit 0
    apt-get update

experiment-001/failed --step 1  tool_call bash  exit 100
    sudo apt-get install -y g++

show the first: proctor show experiment-001/worked --step 1
"""


def test_every_trace_that_ran_a_command_is_found_by_typing_it(
    ledger: Path, proctor: Proctor
) -> None:
    found = proctor("search", "apt-get")
    assert (found.code, found.out, found.err) == (0, SHOWN, "")


def test_one_line_a_trial_with_its_count(ledger: Path, proctor: Proctor) -> None:
    found = proctor("search", "role:tool_call", "--trials")
    assert found.out.splitlines() == [
        "3 matches in 2 trials, newest first",
        "",
        "1  experiment-001/worked",
        "2  experiment-001/failed",
    ]
    found = proctor("search", "role:tool_call", "--trials", "--limit", 1, "--json")
    document = json.loads(found.out)
    assert (document["matches"], document["trials"], len(document["by_trial"])) == (3, 2, 1)


def test_pages_are_counted_and_the_next_one_is_named(ledger: Path, proctor: Proctor) -> None:
    pages = [
        proctor("search", "tool:bash", "--limit", 4, "--page", at).out.splitlines()
        for at in (1, 2, 3)
    ]
    assert [page[0] for page in pages] == [
        "6 matches in 2 trials, newest first; 1 to 4",
        "6 matches in 2 trials, newest first; 5 to 6",
        "6 matches in 2 trials; none on page 3",
    ]
    assert ["more: --page 2" in page for page in pages] == [True, False, False]


def test_the_options_of_other_commands_choose_trials(ledger: Path, proctor: Proctor) -> None:
    found = proctor("search", "apt-get", "--where", "model=openai/gpt-5", "--json")
    (hit,) = json.loads(found.out)["hits"]
    assert (hit["trial_id"], hit["step"], hit["exit_code"]) == ("worked", 1, 0)
    assert hit["show"] == ["proctor", "show", "experiment-001/worked", "--step", "1"]
    assert hit["snippet"] == {"before": "", "match": "apt-get", "after": " update"}


def test_a_hit_in_a_step_of_several_leads_to_that_step_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proctor: Proctor
) -> None:
    files = {
        f"steps/{name}/agent/trajectory.jsonl": lines(ran(f"needle {name}")) for name in ("a", "b")
    }
    with open_ledger(tmp_path) as ledger:
        seal_files(ledger, "parts", files)
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    found = proctor("search", "needle")
    assert "experiment-001/parts --step 1 --part b  tool_call bash" in found.out.splitlines()
    (hint,) = [line for line in found.out.splitlines() if line.startswith("show the first: ")]
    shown = proctor(*shlex.split(hint.removeprefix("show the first: "))[1:]).out
    assert ("needle b" in shown, "needle a" in shown) == (True, False)


def test_the_ledger_that_was_named_is_named_in_the_way_to_a_hit(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, proctor: Proctor
) -> None:
    monkeypatch.delenv("PROCTOR_LEDGER")
    (hit, *_) = json.loads(proctor("search", "apt-get", "--ledger", ledger, "--json").out)["hits"]
    assert "apt-get update" in proctor(*hit["show"][1:]).out


def test_a_step_too_large_to_be_held_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proctor: Proctor
) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_trace(ledger, "far", ran("needle", 1 << 62))
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    (hit,) = json.loads(proctor("search", "needle", "--json").out)["hits"]
    assert (hit["step"], hit["show"]) == (None, ["proctor", "show", "experiment-001/far"])


def test_nothing_found_is_said_and_is_no_error(ledger: Path, proctor: Proctor) -> None:
    found = proctor("search", "nowhere")
    assert (found.code, found.out) == (0, "no match\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["foo:bar"], "is not a filter"),
        (['"open'], "has an unclosed quote"),
        (["x", "--trials", "--rank"], "--trials cannot be combined with --rank"),
        (["x", "--page", "0"], "0 is not in the range"),
        (["x", "--limit", str(10**30)], "expected no more than 10000 a page"),
        (["x", "--where", "since=soon"], "expected a time"),
        ([], "Missing argument"),
        (["x", "--ledger", "nowhere"], "nowhere: not a ledger"),
    ],
)
def test_wrong_use_is_a_sentence(
    ledger: Path, proctor: Proctor, arguments: list[str], sentence: str
) -> None:
    found = proctor("search", *arguments)
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err


def test_hostile_text_does_no_harm_and_fits_on_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proctor: Proctor
) -> None:
    nasty = "\x1b]0;owned\x07 \x1b[31mred\x1b[0m\r\n\tneedle\u202e \x9b2J <b>&amp; " * 20
    with open_ledger(tmp_path) as ledger:
        seal_trace(ledger, "evil", said(nasty), ran("x", 2, "\x1b[2J"), gave("needle", 1, 2, None))
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["needle"], ["needle", "--json"]):
        found = proctor("search", *arguments)
        assert found.out.replace("\n", "").isprintable()
    lines = proctor("search", "needle role:assistant").out.splitlines()
    assert "needle" in lines[3]
    assert len(lines[3]) <= 80


def test_evidence_that_cannot_be_read_is_named(ledger: Path, proctor: Proctor) -> None:
    for path in (ledger / "artifacts").rglob("*.zst"):
        path.write_bytes(b"no archive")
    found = proctor("search", "review")
    assert found.code == 0
    assert "3 matches in 3 trials" in found.out
    assert "proctor: not searched: experiment-001/failed: artifact" in found.err
    assert "(and 2 more)" in found.err


PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "traces.md"
EXAMPLES = [
    line.removeprefix("| `").partition("` |")[0].replace(r"\|", "|")
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `proctor search ")
]


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_page_finds_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proctor: Proctor, example: str
) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_trace(
            ledger,
            "pages",
            said("Either foo or bar: the C++ compiler needs installing. Permission denied?"),
            ran("sudo apt-get install -y gcc && cat /etc/passwd"),
            gave("E: Unable to locate package gcc; permission denied", 100),
            **{"agent.model": "openai/gpt-5", "task.task_id": "org/fix-git"},
        )
        nightly = {"experiment_id": "nightly", "evaluation.reward": 0.0}
        seal_trace(ledger, "abc", ran("yum install gcc"), gave("timeout", 1), **nightly)
        seal_files(ledger, "changed", {"changes.jsonl": changes(change("/etc/passwd"))})
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    found = proctor(*shlex.split(example)[1:])
    assert (found.code, found.err) == (0, "")
    assert "no match" not in found.out
