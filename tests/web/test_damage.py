"""A damaged ledger: every page says so, and what can be shown of it is shown."""

import gc
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.ledger.ledgers import forget_index
from tests.web.browsing import NO_TLS, serving
from tests.web.subjects import SEALED, snapshot

PAGES = ("/", f"/experiments/{SEALED[0]}", "/nothing", "/experiments/unknown")
BANNER = "This ledger is damaged:"


@pytest.fixture
def copy(sealed: Path, tmp_path: Path) -> Path:
    """A ledger that may be damaged."""
    return Path(shutil.copytree(sealed, tmp_path / "ledger"))


def segment(ledger: Path) -> Path:
    """Its log."""
    return ledger / "entries" / "000000.jsonl"


def edit(ledger: Path) -> None:
    """A reward is made better."""
    data = segment(ledger).read_bytes()
    assert b'"reward":0.0' in data
    segment(ledger).write_bytes(data.replace(b'"reward":0.0', b'"reward":1.0', 1))


def break_line(ledger: Path) -> None:
    """A line in the middle is no entry any more."""
    lines = segment(ledger).read_bytes().split(b"\n")
    lines[3] = b"x" * len(lines[3])
    segment(ledger).write_bytes(b"\n".join(lines))


def cut_off(ledger: Path) -> None:
    """The last entries are gone."""
    lines = segment(ledger).read_bytes().split(b"\n")
    segment(ledger).write_bytes(b"\n".join(lines[:8]) + b"\n")


def spoil_checkpoint(ledger: Path) -> None:
    """The checkpoint is no checkpoint."""
    (ledger / "checkpoint").write_text("nothing of the kind\n")


def lose_checkpoint(ledger: Path) -> None:
    """There is none."""
    (ledger / "checkpoint").unlink()


def forge_signature(ledger: Path) -> None:
    """The signature is another one."""
    text = (ledger / "checkpoint").read_text()
    at = text.rindex(" ") + 12
    changed = "A" if text[at] != "A" else "B"
    (ledger / "checkpoint").write_text(text[:at] + changed + text[at + 1 :])


WAYS = [edit, break_line, cut_off, spoil_checkpoint, lose_checkpoint, forge_signature]


@pytest.mark.parametrize("damage", WAYS)
@pytest.mark.parametrize("with_index", [True, False])
def test_every_page_says_that_the_ledger_is_damaged(
    copy: Path, damage: Callable[[Path], None], with_index: bool
) -> None:
    damage(copy)
    if not with_index:
        forget_index(copy)
    source = DataSource(ledger=copy)
    before = snapshot(copy)
    with (
        serving(make_app(source)) as address,
        httpx.Client(base_url=address, verify=NO_TLS) as client,
    ):
        client.get("/")
        assert source.health is not None
        source.health.wait()
        for path in PAGES:
            response = client.get(path)
            assert BANNER in response.text, path
            assert response.status_code == (200 if path in PAGES[:2] else 404)
            assert "Traceback" not in response.text
        assert SEALED[0] in client.get("/").text
    assert snapshot(copy) == before


def test_a_ledger_that_is_whole_has_no_banner(copy: Path) -> None:
    source = DataSource(ledger=copy)
    with (
        serving(make_app(source)) as address,
        httpx.Client(base_url=address, verify=NO_TLS) as client,
    ):
        client.get("/")
        assert source.health is not None
        source.health.wait()
        assert all(BANNER not in client.get(path).text for path in PAGES)


def test_damage_that_comes_while_it_is_looked_at_is_seen_and_so_is_its_end(copy: Path) -> None:
    source = DataSource(ledger=copy)
    whole = segment(copy).read_bytes()
    with (
        serving(make_app(source)) as address,
        httpx.Client(base_url=address, verify=NO_TLS) as client,
    ):
        assert BANNER not in client.get("/").text
        cut_off(copy)
        forget_index(copy)
        assert BANNER in client.get("/").text
        segment(copy).write_bytes(whole)
        assert BANNER not in client.get("/").text


def test_a_ledger_that_is_taken_away_and_brought_back_is_said_and_shown(copy: Path) -> None:
    trial = f"/trials/{SEALED[0]}/oracle-wrong__FgnNypc"
    pages = (*PAGES[:2], "/boards", "/ledger/entries/1", trial, f"{trial}/trace", "/search?q=a")
    with (
        serving(make_app(DataSource(ledger=copy))) as address,
        httpx.Client(base_url=address, timeout=30, verify=NO_TLS, trust_env=False) as client,
    ):
        assert {client.get(page).status_code for page in pages} == {200}
        forget_index(copy)
        assert {client.get(page).status_code for page in pages} == {200}
        away = copy.rename(copy.with_name("away"))
        gone = [client.get(page) for page in pages]
        assert {each.status_code for each in gone} == {404}
        assert all("Traceback" not in each.text for each in gone)
        assert "not a ledger: found nothing" in gone[0].text
        assert not copy.exists()
        away.rename(copy)
        assert {client.get(page).status_code for page in pages} == {200}


def test_many_requests_leave_no_file_open(copy: Path) -> None:
    trial = f"/trials/{SEALED[0]}/oracle-wrong__FgnNypc"
    pages = (
        "/", f"/experiments/{SEALED[0]}", trial, f"{trial}/trace", f"{trial}/steps?from=0&count=5",
        f"{trial}/files/result.json", f"{trial}/files/result.json?raw=1", f"{trial}/files/none",
        "/ledger", "/ledger/entries/2/proof", "/search?q=a", "/nothing",
    )  # fmt: skip
    with (
        serving(make_app(DataSource(ledger=copy))) as address,
        httpx.Client(base_url=address, timeout=30, verify=NO_TLS, trust_env=False) as client,
    ):
        _ask_all(client, pages)
        first = _count_files()
        for _ in range(8):
            _ask_all(client, pages)
        # The server lets go of what was broken off a moment after the client has.
        until = time.monotonic() + 20
        while _count_files() > first and time.monotonic() < until:
            time.sleep(0.05)
        assert _count_files() <= first


def _ask_all(client: httpx.Client, pages: tuple[str, ...]) -> None:
    for page in pages:
        assert client.get(page).status_code in (200, 404)
        with client.stream("GET", page):
            # What is not read to its end is broken off.
            pass


def _count_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))
