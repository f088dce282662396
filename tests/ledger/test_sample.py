"""The sample ledger: stored made-up runs, which commands read and never change."""

import json

import pytest

from proctor.cli.options import SAMPLE
from proctor.digest import sha256_hex
from tests.cli.programs import Proctor

LARGEST = 2_000_000
READERS = [
    ("ledger", "verify"),
    ("ledger", "list"),
    ("ledger", "prove", "4", "-o", "-"),
    ("ledger", "claim", "--experiment", "quickfix-orca-2", "-o", "-"),
    ("ledger", "checkpoint"),
    ("ledger", "key"),
    ("board", "--dataset", "sample-terminal@1.0"),
    ("report", "quickfix-orca-2"),
    ("compare", "patchwork-atlas-large", "quickfix-orca-2"),
    ("gate", "quickfix-orca-2", "--min-mean", "0.5"),
    ("check", "patchwork-atlas-large", "--policy", "terminal-bench-2-1"),
    ("show", "4"),
    ("search", "pytest"),
    ("trace", "summary", "quickfix-orca-2"),
    ("trace", "classify", "quickfix-orca-2"),
    ("export", "--experiment", "quickfix-orca-2", "-o", "OUT"),
]


def digests() -> dict[str, str]:
    return {
        path.relative_to(SAMPLE).as_posix(): sha256_hex(path.read_bytes())
        for path in SAMPLE.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_commands_read_it_and_leave_it_as_it_was(
    words: tuple[str, ...], proctor: Proctor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = digests()
    out = tmp_path_factory.mktemp("out") / "x.tar.zst"
    ran = proctor(*(out if word == "OUT" else word for word in words), "--sample")
    # A policy that is not met is an answer too.
    assert ran.code == (1 if words[0] == "check" else 0), ran.err
    assert digests() == before


def test_it_is_small_sound_and_has_something_to_see(proctor: Proctor) -> None:
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) < LARGEST
    assert json.loads(proctor("ledger", "verify", "--sample", "--json").out)["is_sound"]
    ran = proctor("board", "--sample", "--dataset", "sample-terminal@1.0", "--json")
    rows = [row for section in json.loads(ran.out)["sections"] for row in section["rows"]]
    assert [row["denominators"]["listed"] for row in rows] == [40] * 4
    assert len({row["score"] for row in rows}) == 4
    assert any("reward-planted" in row["findings"] for row in rows)
    assert any(row["denominators"]["exceptions"] for row in rows)


def test_it_cannot_be_read_together_with_another_ledger(proctor: Proctor) -> None:
    ran = proctor("ledger", "list", "--sample", "--ledger", "mine")
    assert ran.code == 2
    assert "--sample cannot be combined with --ledger" in ran.err


def test_a_command_that_writes_does_not_take_it(proctor: Proctor) -> None:
    ran = proctor("ledger", "review", "4", "--verdict", "pass", "--sample")
    assert ran.code == 2
    assert "No such option '--sample'" in ran.err


def test_the_command_that_is_shown_next_reads_it_too(proctor: Proctor) -> None:
    assert proctor("search", "pytest", "--sample").out.endswith(" --sample\n")
