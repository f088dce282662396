"""`proctor trace convert`: what it writes, what it lists as lost, and what it refuses."""

import json
import subprocess
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from tests.audit.directories import COPIED
from tests.cli.programs import Proctor, command_line, environment
from tests.record.samples import DATA

ATIF = COPIED / "04-binary-scripted-k5" / "pass-simple__35oQqES" / "agent" / "trajectory.json"
CONVERSATIONS = DATA.parent / "conversations"
GOOD = '{"step":1,"role":"user","content":"x"}\n'
DAMAGED = GOOD + '{"step":2,"role":"assistant","more":5}\nnonsense\n{"st'


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "damaged.jsonl"
    path.write_text(DAMAGED)
    return path


def test_there_and_back_through_files(proctor: Proctor, tmp_path: Path) -> None:
    there, back = tmp_path / "t.jsonl", tmp_path / "t.json"
    ran = proctor("trace", "convert", ATIF, "--to", "trajectory", "-o", there)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{there}: trajectory of ")
    assert ran.out.endswith(" entries; 0 fields lost\n")
    assert proctor("check", there).code == 0
    assert proctor("trace", "convert", there, "--to", "atif", "-o", back).code == 0
    assert json.loads(back.read_bytes()) == json.loads(ATIF.read_bytes())


@pytest.mark.parametrize("target", ["trajectory", "atif"])
def test_stdout_and_the_file_have_the_same_bytes(tmp_path: Path, target: str) -> None:
    file = tmp_path / "out"
    command = command_line("trace", "convert", ATIF, "--to", target)
    printed = subprocess.run(
        command, env=environment(), capture_output=True, check=True, timeout=60
    )
    subprocess.run([*command, "-o", file], env=environment(), check=True, timeout=60)
    assert printed.stdout == file.read_bytes()
    assert printed.stderr == b""
    dash = subprocess.run(
        [*command, "-o", "-"], env=environment(), cwd=tmp_path, capture_output=True, timeout=60
    )
    assert dash.stdout == printed.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_empty_trajectory_without_header_is_empty(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    ran = proctor("trace", "convert", path, "--to", "trajectory", "--no-header")
    assert (ran.code, ran.out) == (0, "")
    ran = proctor("trace", "convert", path, "--to", "atif")
    assert (ran.code, ran.out) == (2, "")
    assert "there are no entries" in ran.err


@pytest.mark.parametrize("name", ["anthropic", "canonical", "openai", "pydantic-ai-1.0.0"])
def test_a_conversation_becomes_what_is_asked_for(
    proctor: Proctor, tmp_path: Path, name: str
) -> None:
    source = CONVERSATIONS / f"{name}.jsonl"
    for target in ("trajectory", "atif"):
        path = tmp_path / target
        assert proctor("trace", "convert", source, "--to", target, "-o", path).code == 0
        ran = proctor("check", path, "--json")
        (found,) = json.loads(ran.out)["checked"]
        assert found["sound"]
        assert found["diagnostics"] == []


def test_the_header_can_be_left_out(proctor: Proctor) -> None:
    whole = proctor("trace", "convert", ATIF, "--to", "trajectory").out
    bare = proctor("trace", "convert", ATIF, "--to", "trajectory", "--no-header").out
    assert json.loads(whole.splitlines()[0])["format"] == "aec-bench-trajectory"
    assert whole.split("\n", 1)[1] == bare


def test_the_agent_can_be_named(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD)
    convert = ("trace", "convert", path, "--to", "atif")
    assert json.loads(proctor(*convert).out)["agent"] == {"name": "unknown", "version": "unknown"}
    ran = proctor(*convert, "--agent", "mine", "--agent-version", "7")
    assert json.loads(ran.out)["agent"] == {"name": "mine", "version": "7"}
    assert json.loads(proctor(*convert, "--agent", "mine").out)["agent"]["name"] == "mine"


def test_strict_refuses_damage_with_file_and_line(proctor: Proctor, damaged: Path) -> None:
    ran = proctor("trace", "convert", damaged, "--to", "atif")
    said = f'proctor: {damaged}:2: unknown key "more"; not part of the format\n'
    assert (ran.code, ran.out, ran.err) == (2, "", said)


def test_salvage_lists_what_is_lost(proctor: Proctor, damaged: Path, tmp_path: Path) -> None:
    ran = proctor("trace", "convert", damaged, "--to", "atif", "--salvage")
    assert ran.code == 0
    assert len(json.loads(ran.out)["steps"]) == 2
    first, second, third = ran.err.splitlines()
    assert first == "lost: line 2: more (5): is not of the format"
    assert second.startswith("lost: line 3 (garbage): not JSON")
    assert third.startswith("lost: line 4 (torn-line): ")
    out = tmp_path / "out.json"
    ran = proctor("trace", "convert", damaged, "--to", "atif", "--salvage", "-o", out, "--json")
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert document["path"] == str(out)
    assert document["sha256"] == sha256_hex(out.read_bytes())
    places = [loss["path"] for loss in document["losses"]]
    assert places == ["line 2: more", "line 3", "line 4"]


def test_many_losses_are_counted(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD + "5\n" * 70)
    ran = proctor("trace", "convert", path, "--to", "trajectory", "--salvage")
    assert len(ran.err.splitlines()) == 51
    assert ran.err.endswith("lost: 20 more; --json lists all of them\n")


@pytest.mark.parametrize("value", ["NaN", "1e999", r'"\ud800"', '"\\u0000"'])
@pytest.mark.parametrize("target", ["trajectory", "atif"])
def test_odd_values_come_out_as_json(
    proctor: Proctor, tmp_path: Path, value: str, target: str
) -> None:
    lines = '{"step":1,"role":"user","metadata":{"a":%s}}\n', '{"role":"user","a":%s}\n'
    for line in lines:
        path = tmp_path / "t.jsonl"
        path.write_text(line % value)
        ran = proctor("trace", "convert", path, "--to", target, "--salvage")
        assert ran.code == 0
        for text in ran.out.splitlines() if target == "trajectory" else [ran.out]:
            json.loads(text, parse_constant=pytest.fail)
        assert bool(ran.err) is (value != '"\\u0000"')


def test_another_file_is_never_overwritten(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "out"
    convert = ("trace", "convert", ATIF, "--to", "trajectory", "-o", path)
    assert proctor(*convert).code == 0
    made = path.read_bytes()
    assert proctor(*convert).code == 0, "the same again changes nothing"
    path.write_bytes(b"mine")
    ran = proctor(*convert)
    said = f"proctor: {path}: exists and is not overwritten; remove it or choose another name\n"
    assert (ran.code, ran.out, ran.err) == (2, "", said)
    assert (path.read_bytes(), made != b"mine") == (b"mine", True)


@pytest.mark.parametrize(
    "options",
    [
        ["--to", "atif", "--json"],
        ["--to", "atif", "--no-header"],
        ["--to", "trajectory", "--agent", "a"],
        ["--to", "trajectory", "--agent-version", "1"],
        ["--to", "pdf"],
        [],
    ],
)
def test_options_that_do_not_fit_are_refused(proctor: Proctor, options: list[str]) -> None:
    ran = proctor("trace", "convert", ATIF, *options)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.err


def test_what_is_no_trace_is_named(proctor: Proctor) -> None:
    path = DATA / "g1x.json"
    ran = proctor("trace", "convert", path, "--to", "atif")
    said = f"proctor: {path}: a trial record; expected a trajectory, a conversation or ATIF\n"
    assert (ran.code, ran.out, ran.err) == (2, "", said)


@pytest.mark.parametrize("target", ["trajectory", "atif"])
def test_a_secret_is_never_written(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    value = "-".join(["hunter2"] * 2)
    monkeypatch.setenv("KEY", value)
    path, out = tmp_path / "t.jsonl", tmp_path / "out"
    path.write_text(
        GOOD.replace('"x"', f'"a {value} b"') + f'{{"step":1,"role":"u","x":"{value}"}}\n'
    )
    options = ("--to", target, "--salvage", "--secret-env", "KEY")
    ran = proctor("trace", "convert", path, *options)
    assert ran.code == 0
    assert value not in ran.out + ran.err
    assert "a [redacted:KEY] b" in ran.out
    ran = proctor("trace", "convert", path, *options, "-o", out, "--json")
    assert value not in ran.out + out.read_text()
    (counted,) = json.loads(ran.out)["redactions"]
    assert counted["name"] == "KEY"
    assert counted["count"] >= 1


def test_a_secret_that_is_not_there_is_refused(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ABSENT", raising=False)
    ran = proctor("trace", "convert", ATIF, "--to", "atif", "--secret-env", "ABSENT")
    assert (ran.code, ran.out) == (2, "")
    assert "--secret-env ABSENT: there is no such environment variable" in ran.err
