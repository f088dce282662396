"""Reviews written from the page of a trial: append-only, by whoever has the token and the key."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from proctor.errors import BusyError
from proctor.ledger.entry import ReviewEntry
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.lock import LOCK
from proctor.ledger.query import find_trial
from proctor.ledger.review import list_remarks
from proctor.ledger.verification.verify import verify_ledger
from proctor.web import reviews
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.unprivileged import NOBODY, unprivileged
from tests.web.browsing import NO_TLS, serving
from tests.web.looking import find_barriers
from tests.web.sealed import HARM, JOBS, open_for_writing, seal_files

TOKEN = "-".join(["a", "token", "of", "this", "test"])
PATH = "/trials/experiment-001/one/reviews"
FORM = {"verdict": "pass", "reviewer": "ana", "note": "read it twice"}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with one trial; the key of the environment is its own."""
    monkeypatch.setenv("PROCTOR_KEY", str(tmp_path / "key"))
    return seal_files(tmp_path, "one", {"trial.log": b"it ran\n"})


@contextmanager
def writing_to(source: DataSource) -> Iterator[httpx.Client]:
    """A program that may write."""
    with (
        serving(make_app(source, token=TOKEN)) as address,
        httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {TOKEN}"},
            verify=NO_TLS,
            trust_env=False,
        ) as client,
    ):
        yield client


def load_reviews(ledger: Path) -> list[ReviewEntry]:
    with OpenLedger.open(ledger) as opened:
        row = find_trial(opened, "experiment-001/one")
        found = [remark.entry for remark in list_remarks(opened, row.record)]
        return [entry for entry in found if isinstance(entry, ReviewEntry)]


def state_of(ledger: Path) -> dict[str, bytes]:
    """All that is kept of a ledger: nothing of it may change when a review is refused."""
    return {str(path): path.read_bytes() for path in ledger.rglob("*") if path.is_file()}


def test_a_review_is_written_in_the_page_and_shown_at_once(ledger: Path, page: Page) -> None:
    with serving(make_app(DataSource(ledger=ledger), token=TOKEN)) as address:
        page.goto(f"{address}/trials/experiment-001/one")
        expect(page.get_by_text("To write a review, open the")).to_be_visible()
        page.goto(f"{address}/trials/experiment-001/one?token={TOKEN}")
        page.get_by_label("pass").check()
        page.get_by_label("Your name").fill("ana")
        page.get_by_label("Why").fill(f"two lines\nand {HARM}")
        assert find_barriers(page) == ""
        page.get_by_role("button", name="Append the review").click()
        expect(page).to_have_url(f"{address}/trials/experiment-001/one?review=2#review-2")
        expect(page.locator("li.new")).to_contain_text("written just now")
        expect(page.locator("li.new pre")).to_contain_text("two lines\nand <script>")
        assert page.evaluate("window.hacked") is None
    (review,) = load_reviews(ledger)
    assert (review.verdict, review.reviewer) == ("pass", "ana")
    assert review.note.startswith("two lines\nand <script>")
    assert verify_ledger(ledger).is_sound


def test_a_review_settles_the_findings_unless_it_defers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_KEY", str(tmp_path / "key"))
    changes: dict[str, object] = {"inputs.instruction": "do it"}
    found = seal_files(tmp_path, "one", {"trial.log": b"it ran\n"}, **changes)
    with writing_to(DataSource(ledger=found)) as client:
        page = "/trials/experiment-001/one"
        assert 'tag">open<' in client.get(page).text
        client.post(PATH, data={**FORM, "verdict": "defer"})
        assert 'tag">open<' in client.get(page).text
        client.post(PATH, data=FORM)
        assert "settled by review: pass" in client.get(page).text


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_without_the_token_or_from_elsewhere_nothing_is_written(
    ledger: Path, headers: dict[str, str], code: int
) -> None:
    before = state_of(ledger)
    with serving(make_app(DataSource(ledger=ledger), token=TOKEN)) as address:
        found = httpx.post(
            address + PATH, data=FORM, headers=headers, verify=NO_TLS, trust_env=False
        )
        assert found.status_code == code
    assert state_of(ledger) == before


def test_what_is_no_review_is_refused_with_a_sentence(ledger: Path) -> None:
    before = state_of(ledger)
    cases: list[tuple[dict[str, str], int, str]] = [
        ({**FORM, "verdict": "great"}, 400, "expected one of pass, fail, defer"),
        ({"reviewer": "ana"}, 400, "expected one of pass, fail, defer"),
        ({**FORM, "reviewer": "  "}, 400, "the reviewer is empty"),
        ({**FORM, "reviewer": "a\x1b[2Jb"}, 400, "control characters"),
        ({**FORM, "reviewer": "a" * 201}, 413, "at most 200"),
        ({**FORM, "note": "a" * 100_001}, 413, "at most 100,000"),
        ({**FORM, "note": "a" * 1_000_000}, 413, "more than"),
    ]
    with writing_to(DataSource(ledger=ledger)) as client:
        for form, code, words in cases:
            found = client.post(PATH, data=form)
            assert (found.status_code, words in found.text) == (code, True), found.text
        assert client.post("/trials/experiment-001/two/reviews", data=FORM).status_code == 404
        assert client.get(PATH).status_code == 405
    assert state_of(ledger) == before


def test_a_plain_job_takes_no_reviews() -> None:
    job = JOBS / "06-errors-oracle-k1"
    with writing_to(DataSource(jobs=(job,))) as client:
        found = client.post(f"/trials/{job.name}/good-one__XEzVDEt/reviews", data=FORM)
        assert found.status_code == 409
        assert "stored in a ledger" in found.text
        assert client.post(f"/trials/{job.name}/none/reviews", data=FORM).status_code == 404


def test_two_at_once_are_both_written(ledger: Path) -> None:
    with writing_to(DataSource(ledger=ledger)) as client, ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda number: client.post(PATH, data={**FORM, "note": str(number)}), range(8))
        )
    assert {each.status_code for each in found} == {303}
    assert sorted(int(each.note) for each in load_reviews(ledger)) == list(range(8))
    assert verify_ledger(ledger).is_sound


def test_a_ledger_that_another_writes_to_is_busy(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "PATIENCE_SEC", 0.2)
    before = state_of(ledger)
    with writing_to(DataSource(ledger=ledger)) as client:
        fd = os.open(ledger / LOCK, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            with open_for_writing(tmp_path) as opened:
                opened.patience_sec = 0.1
                with pytest.raises(BusyError, match="another process"), opened.writing():
                    pass
            found = client.post(PATH, data=FORM)
            assert found.status_code == 503
            assert found.headers["retry-after"] == "5"
            assert "another process" in found.text
            assert state_of(ledger) == before
        finally:
            os.close(fd)
        assert client.post(PATH, data=FORM).status_code == 303


def test_without_the_ledgers_key_nothing_is_written_and_no_key_is_made(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(ledger)
    with writing_to(DataSource(ledger=ledger)) as client:
        monkeypatch.setenv("PROCTOR_KEY", str(tmp_path / "none"))
        assert client.post(PATH, data=FORM).status_code == 403
        assert not (tmp_path / "none").exists()
        make_key(tmp_path / "other", "example.org/other")
        monkeypatch.setenv("PROCTOR_KEY", str(tmp_path / "other"))
        found = client.post(PATH, data=FORM)
        assert found.status_code == 403
        assert "nothing was written" in found.text
    assert state_of(ledger) == before


def test_whoever_may_not_write_the_ledger_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        ledger = seal_files(home, "one", {"trial.log": b"it ran\n"})
        monkeypatch.setenv("PROCTOR_KEY", str(home / "key"))
        open_to_readers(home)
        before = state_of(ledger)
        with writing_to(DataSource(ledger=ledger)) as client:
            # Whatever Python loads late lies where only root may look.
            assert client.post(PATH, data={**FORM, "verdict": "great"}).status_code == 400
            with unprivileged():
                found = client.post(PATH, data=FORM)
                shown = client.get("/trials/experiment-001/one")
        assert found.status_code == 403, found.text
        assert "nothing was written" in found.text
        assert shown.status_code == 200
        assert state_of(ledger) == before


def open_to_readers(home: Path) -> None:
    """Everybody may read what is below, nobody may write; the key is theirs who have no rights."""
    home.chmod(0o755)
    for path in (home / "ledger").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (home / "ledger").chmod(0o555)
    if os.geteuid() == 0:
        os.chown(home / "key", NOBODY, NOBODY)
