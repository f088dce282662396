"""The checker that the docs have, which shares no code with proctor, says what verify says."""

import ast
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.by_hand import append_by_hand, trial
from tests.ledger.ledgers import RichLedger, find_key, make_rich_ledger, small
from tests.ledger.mutations import LOG_MUTATIONS, Mutation, Subject, put_a_pipe_for_a_segment
from tests.ledger.signed_mutations import (
    SIGNED_MUTATIONS,
    put_a_link_for_an_artifact,
    put_a_pipe_for_an_artifact,
    put_an_older_checkpoint_back,
)
from tests.ledger.test_mutations import name_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "formats" / "ledger.md"
CHECKER = PAGE.with_name("check_ledger.py")
BEYOND = {
    put_a_pipe_for_a_segment: "it waits for a pipe",
    put_a_pipe_for_an_artifact: "it waits for a pipe",
    put_a_link_for_an_artifact: "it follows a link",
    put_an_older_checkpoint_back: "without an index a shorter ledger is all it can see",
}
"""What the checker cannot see, and why."""
MUTATIONS = [
    mutation
    for mutation in (*LOG_MUTATIONS, *SIGNED_MUTATIONS)
    if mutation not in BEYOND and not isinstance(mutation, partial)
]


def printed() -> str:
    """The page's shell commands."""
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(block)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> RichLedger:
    """Some entries of all kinds, and the two programs beside them."""
    place = tmp_path_factory.mktemp("checked")
    shutil.copy(CHECKER, place / "checker.py")
    (place / "artifacts.sh").write_text(printed())
    return make_rich_ledger(place, size=120, segment_size=20_000)


@pytest.fixture
def subject(ledger: RichLedger) -> Iterator[Subject]:
    """The ledger, put back afterwards."""
    subject = Subject(ledger, random.Random())
    yield subject
    subject.put_back()


def run(place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, timeout=60
    )


def accepts(ledger: RichLedger, *older: str) -> bool:
    """Whether both programs are content."""
    place = ledger.directory.parent
    checked = run(place, sys.executable, "-I", "checker.py", "ledger", *older)
    artifacts = run(place, "sh", "artifacts.sh")
    return checked.returncode == 0 and not artifacts.stdout


def test_it_is_short_and_shares_no_code_with_proctor() -> None:
    program = CHECKER.read_text()
    assert len(program.splitlines()) <= 65
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(program))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported == {"base64", "cryptography", "hashlib", "json", "re", "sys"}


def test_it_refuses_a_trial_that_is_sealed_twice_and_an_id_that_is_a_path(tmp_path: Path) -> None:
    shutil.copy(CHECKER, tmp_path / "checker.py")
    command = (sys.executable, "-I", "checker.py", "ledger")
    directory, key = small(tmp_path, "t1"), find_key(tmp_path)
    assert run(tmp_path, *command).returncode == 0
    append_by_hand(directory, key, trial("t1", **{"evaluation.reward": 0.5}))
    assert "entries 1 and 2 are the same trial" in run(tmp_path, *command).stderr
    shutil.rmtree(directory)
    append_by_hand(small(tmp_path), key, trial("../x"))
    assert "entry 1: no id" in run(tmp_path, *command).stderr


needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")


@needs_zstd
def test_it_accepts_an_honest_ledger_and_names_its_key(ledger: RichLedger) -> None:
    assert accepts(ledger)
    assert accepts(ledger, "older")
    said = run(ledger.directory.parent, sys.executable, "-I", "checker.py", "ledger").stdout
    assert said.startswith("120 entries")
    assert str(ledger.first_key.verifier) in said


def agrees(subject: Subject, mutation: Mutation, seed: int) -> bool:
    subject.random.seed(f"{name_of(mutation)} {seed}")
    mutation(subject)
    found = verify_ledger(subject.ledger.directory, since=[subject.ledger.older])
    is_same = accepts(subject.ledger, "older") == found.is_sound
    subject.put_back()
    return is_same


@needs_zstd
@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_it_agrees_with_verify_on_a_damaged_ledger(subject: Subject, mutation: Mutation) -> None:
    assert agrees(subject, mutation, 0)


@needs_zstd
@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_it_agrees_with_verify_on_many_damaged_ledgers(
    subject: Subject, mutation: Mutation
) -> None:
    assert [seed for seed in range(1, 30) if not agrees(subject, mutation, seed)] == []
