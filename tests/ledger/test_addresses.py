"""Addresses in place of a ledger's directory, for commands that need the directory."""

from pathlib import Path

import pytest

from proctor.errors import LedgerError
from proctor.ledger.ledger import REMOTE
from proctor.ledger.place import hide_secrets, ledger_directory
from tests.cli.programs import Proctor

TASKS = Path(__file__).resolve().parent.parent.parent / "examples" / "tasks"
ADDRESS = "https://ledger.example.org"


@pytest.mark.parametrize(
    "words",
    [
        ("ledger", "init", "--ledger"),
        ("ledger", "init", "--next-key", "key", "--ledger"),
        ("ledger", "withhold", "trial", "--reason", "private", "--ledger"),
        ("ledger", "review", "trial", "--verdict", "pass", "--reviewer", "ana", "--ledger"),
        ("serve", "--ledger"),
        ("serve", "access", "add", "node", "--ledger"),
        ("serve", "access", "list", "--ledger"),
        ("serve", "access", "revoke", "node", "--ledger"),
    ],
)
def test_what_is_done_where_the_ledger_is_takes_no_address(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = proctor(*words, ADDRESS)
    said = f"proctor: {ADDRESS}: an address; expected the directory of a ledger: this command runs"
    assert (ran.code, ran.err.startswith(said)) == (2, True), ran
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("ledger", "withhold", "trial", "--reason", "r"), ("serve",)])
def test_nor_does_it_take_a_copy(proctor: Proctor, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / REMOTE).touch()
    ran = proctor(*words, "--ledger", tmp_path)
    assert (ran.code, f"{tmp_path}: a copy of another machine's ledger" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "address",
    [
        "https://",
        "HTTPS:///",
        "https://ana:secret@ledger.example.org",
        "https://:secret@ledger.example.org",
        "https://ledger.example.org?token=secret",
        "https://ledger.example.org#secret",
        "s3://key:secret@bucket/prefix",
    ],
)
def test_an_address_with_a_secret_in_it_or_without_a_host_is_refused(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("run", "-p", TASKS, "-a", "nop"), ("show", "trial"), ("ledger", "list")):
        ran = proctor(*words, "--ledger", address)
        assert (ran.code, "not the address of a " in ran.err) == (2, True), ran
        assert "secret" not in ran.err.replace("nothing secret in it", "")
    assert list(tmp_path.iterdir()) == []


def test_an_address_is_shown_without_what_is_secret() -> None:
    for address, shown in (
        (ADDRESS, ADDRESS),
        ("https://a:b@c.org/d?e=f", "https://…@c.org/d"),
        ("s3:/key@bucket/a@b", "s3:/…@bucket/a@b"),
        ("https://c.org/a@b", "https://c.org/a@b"),
    ):
        assert hide_secrets(address) == shown


def test_no_ledger_is_made_where_a_copy_was(tmp_path: Path) -> None:
    copy = tmp_path / "proctor" / "ledgers" / ("0f" * 16)
    for path in (copy, f"{copy}/"):
        with pytest.raises(LedgerError, match="which is gone"):
            ledger_directory(path, {})
    copy.mkdir(parents=True)
    (copy / REMOTE).touch()
    assert ledger_directory(copy, {}) == copy
    assert ledger_directory(copy.parent / "nightly", {}) == copy.parent / "nightly"
