"""`proctor show` of what is sealed: a trial by any of its names, its bytes, its evidence."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.ledger.api import Ledger
from proctor.ledger.sealing import Submission
from tests.cli.programs import Proctor, command_line, environment, run_child
from tests.ledger.ledgers import EXPERIMENT, artifact_path, record_bytes
from tests.ledger.trials import open_ledger, seal_files

FILES = {"trace.jsonl": b'{"a": 1}\n', "raw.bin": bytes(range(256)), "empty": b""}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    with open_ledger(tmp_path, "first", "second") as ledger:
        hostile = {"inputs.instruction": "\x1b[31mred\x07 \u202e", "evaluation.reward": None}
        seal_files(ledger, "third", FILES, completeness="partial", **hostile)
        yield ledger


def test_a_trial_is_shown_by_any_of_its_names(proctor: Proctor, ledger: Ledger) -> None:
    digest = ledger.find("third").record
    names = ["third", f"{EXPERIMENT}/third", "3", "th", digest, digest[:10], f"{EXPERIMENT}/t"]
    shown = [proctor("show", name) for name in names]
    assert {each.code for each in shown} == {0}
    assert len({each.out for each in shown}) == 1
    lines = shown[0].out.splitlines()
    assert lines[0] == f"third, diagnostic, of experiment {EXPERIMENT}"
    assert f"  sha256       {digest}" in lines
    assert "  reward       not scored (harbor_reward_missing)" in lines
    assert any(line.endswith("  9 B  trace.jsonl") for line in lines)
    assert "\x1b" not in shown[0].out
    assert "\u202e" not in shown[0].out


def test_a_sealed_record_has_the_fields_of_its_file(
    proctor: Proctor, ledger: Ledger, tmp_path: Path
) -> None:
    free = {"cost.estimated_cost_usd": 0.0, "evaluation.reward": None}
    several = {"evaluation.breakdown": {"x": 1, "y": 0}}
    record = tmp_path / "record.json"
    record.write_bytes(record_bytes("free", **free, **several))
    ledger.seal_all([Submission(record=record.read_bytes(), where="free")])
    in_file = proctor("show", record).out.splitlines()
    fields = in_file[1 : next(at for at, line in enumerate(in_file) if "cost  " in line) + 1]
    assert "  reward       without a number" in fields
    assert fields[-1].startswith("  cost         $0.00, ")
    sealed = proctor("show", "free").out.splitlines()
    at = sealed.index(fields[0])
    assert sealed[at : at + len(fields)] == fields


def test_findings_are_shown_with_their_level(proctor: Proctor, ledger: Ledger) -> None:
    findings = tuple({"code": code, "message": "seen"} for code in ("late-reward", "output-cut"))
    submission = Submission(record=record_bytes("found"), where="found", findings=findings)
    ledger.seal_all([submission])
    lines = proctor("show", "found").out.splitlines()
    assert "  finding  alarm  late-reward: seen" in lines
    assert "  finding  info  output-cut: seen" in lines


def test_the_raw_bytes_give_the_digest(ledger: Ledger, tmp_path: Path) -> None:
    command = f"{' '.join(command_line('show', 'first', '--raw'))} | sha256sum"
    ran = subprocess.run(
        ["bash", "-c", command], env=environment(), cwd=tmp_path, capture_output=True, check=True
    )
    assert ran.stdout.decode().split()[0] == ledger.find("first").record


@pytest.mark.parametrize("path", FILES)
def test_one_file_of_the_evidence_is_given_as_it_was(ledger: Ledger, path: str) -> None:
    ran = subprocess.run(
        command_line("show", "third", "--evidence", path),
        env=environment(),
        capture_output=True,
        check=True,
    )
    assert ran.stdout == FILES[path]


def test_evidence_that_was_altered_is_not_given(ledger: Ledger, proctor: Proctor) -> None:
    path = artifact_path(ledger, sha256_hex(FILES["trace.jsonl"]))
    other = artifact_path(ledger, sha256_hex(FILES["raw.bin"]))
    path.write_bytes(other.read_bytes())
    ran = run_child("show", "third", "--evidence", "trace.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert "artifact" in ran.err
    path.unlink()
    ran = run_child("show", "third", "--evidence", "trace.jsonl")
    assert (ran.code, "is missing" in ran.err) == (1, True)
    assert "trace.jsonl  (not here)" in proctor("show", "third").out


def test_as_json_it_is_one_document(proctor: Proctor, ledger: Ledger) -> None:
    ledger.review(ledger.find("third"), "defer", reviewer="ana", note="\x1b[31m")
    ran = proctor("show", "third", "--json")
    document = json.loads(ran.out)
    assert (document["seq"], document["status"], document["reward"]) == (3, "diagnostic", None)
    assert document["record_sha256"] == ledger.find("third").record
    assert document["entry"]["record"]["trial_id"] == "third"
    assert [each["verdict"] for each in document["remarks"]] == ["defer"]
    assert "\x1b" not in ran.out


def test_all_that_was_said_of_a_trial_is_shown(proctor: Proctor, ledger: Ledger) -> None:
    first, second = ledger.find("first"), ledger.find("second")
    ledger.review(first, "fail", reviewer="ana", note="no")
    ledger.review(first, "pass", reviewer="ben")
    ledger.supersede(first, second, "infrastructure", reason="disk full", author="ana")
    shown = proctor("show", "first").out
    assert "first, superseded, of" in shown
    assert shown.index("review fail by ana: no") < shown.index("review pass by ben")
    assert f"{EXPERIMENT}/second replaces {EXPERIMENT}/first (infrastructure)" in shown
    assert "replaces" in proctor("show", "second").out


def test_an_entry_that_is_no_trial_is_shown(proctor: Proctor, ledger: Ledger) -> None:
    assert proctor("show", "0").out.startswith("entry 0, key\n")
    assert json.loads(proctor("show", "0", "--json").out)["entry"]["kind"] == "key"
    assert run_child("show", "0", "--raw").out.encode() == ledger.line(0)


def test_a_file_goes_before_a_trial_of_its_name(
    proctor: Proctor, ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "first").write_text("x")
    assert "expected one of: trajectory" in proctor("show", "first").err
    assert proctor("show", "first", "--ledger", Path(ledger.where)).code == 0


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["nix"], 2, "no trial or entry is named 'nix'"),
        (["9"], 2, "no trial or entry is named '9'"),
        ([EXPERIMENT], 2, f"is an experiment; expected one of its trials, such as {EXPERIMENT}/"),
        ([EXPERIMENT + "/"], 2, "may be any of"),
        (["first", "--step", "1", "--raw"], 2, "--step cannot be used with --raw and --evidence"),
        (["0", "--errors"], 2, "--errors cannot be used with an entry that is not a trial"),
        (
            ["first", "--step", "x"],
            2,
            "'x' is not a step; expected a number or a range such as 3-7",
        ),
        (["first", "--raw", "--json"], 2, "--raw cannot be combined with --json"),
        (["first", "--evidence", "nix"], 2, "has no evidence 'nix'"),
        (["0", "--evidence", "nix"], 2, "cannot be used with an entry that is not a trial"),
        (["first", "--ledger", "nowhere"], 2, "nowhere: not a ledger"),
    ],
)
def test_what_cannot_be_shown_is_said(
    proctor: Proctor, arguments: list[str], code: int, sentence: str
) -> None:
    ran = proctor("show", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert sentence in ran.err


SLOW = ("pydantic", "cryptography", "rich", "genai_prices", "proctor.record.model")


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    "arguments",
    [["ledger", "list"], ["ledger", "list", "--where", "trial=x", "--json"], ["show", "first"]],
)
def test_looking_up_loads_nothing_slow(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom proctor.cli.main import main\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, sep=chr(10), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *arguments]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    loaded = set(ran.stderr.splitlines())
    assert "proctor.ledger.query" in loaded
    assert loaded.isdisjoint(SLOW)


def test_without_a_ledger_a_missing_file_is_one(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROCTOR_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    ran = proctor("show", "trace.jsonl")
    assert (ran.code, "trace.jsonl: there is no such file, and no ledger" in ran.err) == (2, True)
