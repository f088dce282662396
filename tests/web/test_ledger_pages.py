"""The pages of a ledger: entries, proofs that a browser checks itself, verification, damage."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from proctor.ledger.claims.proof import InclusionProof, parse_proof, proven_entry
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trial
from proctor.ledger.review import append_note, append_review
from proctor.ledger.tree import leaf_hash
from proctor.ledger.withhold import Why, withhold_trial
from proctor.web import verification
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.ledger.ledgers import forget_index, make_rich_ledger
from tests.web.browsing import NO_TLS, serving
from tests.web.looking import PHONE, find_barriers, follow, is_too_wide, watch_dialogs
from tests.web.sealed import HARM, LONG, open_for_writing, seal_files


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with entries of all kinds, two of them withheld; nobody writes to it."""
    return make_rich_ledger(tmp_path_factory.mktemp("rich"), size=150).directory


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A ledger with two trials, to be broken."""
    seal_files(tmp_path, "one", {"a.txt": b"of one\n"})
    return seal_files(tmp_path, "two", {"b.txt": b"of two\n"})


def edit_line(ledger: Path, before: bytes, after: bytes) -> None:
    """Change bytes of the log, as many as there were."""
    segment = ledger / "entries" / "000000.jsonl"
    data = segment.read_bytes()
    assert len(before) == len(after)
    assert before in data
    segment.write_bytes(data.replace(before, after, 1))


def test_the_entries_are_paged_from_the_newest_on(rich: Path, page: Page) -> None:
    with OpenLedger.open(rich) as ledger:
        size = ledger.checkpoint().tree.size
    page.set_viewport_size(PHONE)
    with serving(make_app(DataSource(ledger=rich))) as address:
        page.goto(f"{address}/ledger")
        expect(page.get_by_text("the checkpoint is signed by the key")).to_be_visible()
        assert find_barriers(page) == ""
        seen: list[int] = []
        while True:
            assert not is_too_wide(page)
            seen += [int(text) for text in page.locator("td.n a").all_inner_texts()]
            older = page.get_by_role("link", name="older")
            if older.count() == 0:
                break
            follow(page, older)
            page.wait_for_load_state()
        assert seen == list(range(size - 1, -1, -1))
        page.get_by_role("link", name="review", exact=False).first.click()
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("tbody")).to_contain_text("pass by ana: read twice")


def test_every_kind_of_entry_has_a_page(rich: Path) -> None:
    with OpenLedger.open(rich) as ledger:
        ledger.refresh()
        kinds = {entry.kind: entry.seq for entry in ledger.index.entries(0, ledger.index.size())}
    assert set(kinds) == {
        *("trial", "review", "rescore", "supersede", "withhold", "plan", "key", "note", ""),
    }
    with serving(make_app(DataSource(ledger=rich))) as address:
        for kind, seq in kinds.items():
            found = httpx.get(f"{address}/ledger/entries/{seq}", verify=NO_TLS, trust_env=False)
            assert found.status_code == 200
            assert f">{kind or 'withheld'}</span>" in found.text
            assert "Inclusion proof" in found.text


def test_a_browser_checks_that_an_entry_is_in_the_log(rich: Path, page: Page) -> None:
    with serving(make_app(DataSource(ledger=rich))) as address:
        for seq in (0, 77, 149):
            page.goto(f"{address}/ledger/entries/{seq}")
            page.get_by_role("button", name="Check in this browser").click()
            expect(page.locator(".checks .good")).to_have_count(3)
        assert find_barriers(page) == ""


def answer(body: str, route: Route) -> None:
    """What somebody between the browser and the ledger would say."""
    route.fulfill(body=body)


def test_a_browser_sees_a_proof_that_does_not_hold(rich: Path, page: Page) -> None:
    with serving(make_app(DataSource(ledger=rich))) as address:
        proof = httpx.get(
            f"{address}/ledger/entries/77/proof", verify=NO_TLS, trust_env=False
        ).json()
        page.goto(f"{address}/ledger/entries/77")
        for change in (
            {"line": proof["line"].replace("reward", "rewarb", 1)},
            {"seq": 76},
            {"path": proof["path"][:-1]},
            {"path": [*proof["path"][:-1], "0" * 64]},
            {"checkpoint": proof["checkpoint"].replace("\n150\n", "\n151\n")},
        ):
            page.unroute_all()
            page.route("**/proof", partial(answer, json.dumps({**proof, **change})))
            page.get_by_role("button", name="Check in this browser").click()
            expect(page.locator("#checked .bad").first).to_be_visible()


def test_the_proof_that_is_given_out_is_one_that_proctor_checks(rich: Path) -> None:
    with serving(make_app(DataSource(ledger=rich))) as address:
        sent = httpx.get(f"{address}/ledger/entries/77/proof", verify=NO_TLS, trust_env=False)
        line = httpx.get(f"{address}/ledger/entries/77/raw", verify=NO_TLS, trust_env=False).content
    assert sent.headers["content-disposition"].startswith("attachment")
    proof = parse_proof(sent.content, "sent")
    assert isinstance(proof, InclusionProof)
    _, entry = proven_entry(proof, "sent")
    assert entry is not None
    assert proof.line is not None
    assert leaf_hash(line) == leaf_hash(proof.line.encode())


def test_a_verification_in_the_page_says_what_it_found(small: Path, page: Page) -> None:
    with serving(make_app(DataSource(ledger=small))) as address:
        page.goto(f"{address}/ledger")
        page.get_by_role("button", name="Verify everything").click()
        expect(page.locator("#verifying .notice")).to_have_text("Sound")
        assert find_barriers(page) == ""
        plain = httpx.get(f"{address}/ledger/verification", verify=NO_TLS, trust_env=False)
        assert ">Sound<" in plain.text
        edit_line(small, b"experiment-001", b"experiment-002")
        page.get_by_role("button", name="Verify everything").click()
        expect(page.locator("#verifying .notice")).to_contain_text("Damaged in")
        expect(page.locator("#verifying .damages")).to_contain_text("edited")


def test_one_verification_at_a_time(small: Path, page: Page) -> None:
    with serving(make_app(DataSource(ledger=small))) as address:
        page.goto(f"{address}/ledger")
        assert verification.ONE.acquire(timeout=20)
        try:
            found = httpx.get(f"{address}/ledger/verification", verify=NO_TLS, trust_env=False)
            assert found.status_code == 503
            page.get_by_role("button", name="Verify everything").click()
            expect(page.locator("#verifying")).to_contain_text("already running")
        finally:
            verification.ONE.release()
        headers = {"Sec-Fetch-Site": "cross-site"}
        found = httpx.get(
            f"{address}/ledger/verification", headers=headers, verify=NO_TLS, trust_env=False
        )
        assert found.status_code == 403


def test_a_verification_ends_when_nobody_waits_for_it(rich: Path) -> None:
    assert verification.ONE.acquire(timeout=20)
    running = verification.Running(rich)
    running.is_left.set()
    running.run()
    assert running.result.empty()
    with serving(make_app(DataSource(ledger=rich))) as address:
        url = f"{address}/ledger/verification/progress"
        with httpx.stream("GET", url, verify=NO_TLS, trust_env=False) as told:
            assert told.status_code == 200
        assert verification.ONE.acquire(timeout=20)
        verification.ONE.release()
        assert (
            ">Sound<"
            in httpx.get(f"{address}/ledger/verification", verify=NO_TLS, trust_env=False).text
        )


def damaged_ledgers(small: Path) -> Iterator[str]:
    """The ways in which a log is broken, one after the other, on the same ledger."""
    segment, checkpoint = small / "entries" / "000000.jsonl", small / "checkpoint"
    whole, note = segment.read_bytes(), checkpoint.read_bytes()
    lines = whole.splitlines(keepends=True)
    broken = {
        "cut": (lines[0] + lines[1], note),
        "no JSON": (lines[0] + b"x" * (len(lines[1]) - 1) + b"\n" + lines[2], note),
        "reordered": (lines[0] + lines[2] + lines[1], note),
        "no checkpoint": (whole, b"nonsense\n"),
        "another root": (whole, note.replace(note.split(b"\n")[2], b"A" * 43 + b"=")),
        "no first entry": (b"{}\n" + lines[1] + lines[2], note),
    }
    for name, (log, signed) in broken.items():
        segment.write_bytes(log)
        checkpoint.write_bytes(signed)
        forget_index(small)
        yield name


def test_a_damaged_ledger_is_shown_as_such_and_never_hidden(small: Path, page: Page) -> None:
    with serving(make_app(DataSource(ledger=small))) as address:
        for name in damaged_ledgers(small):
            for path in ("/ledger", "/ledger/entries/1"):
                found = httpx.get(address + path, verify=NO_TLS, trust_env=False)
                assert found.status_code == 200, (name, path)
                assert 'role="alert"' in found.text, (name, path)
                assert "Traceback" not in found.text
            trial = httpx.get(
                f"{address}/trials/experiment-001/two", verify=NO_TLS, trust_env=False
            )
            assert trial.status_code == (404 if name == "cut" else 200), name
            assert 'role="alert"' in trial.text, name
            assert "that are signed" not in trial.text, name
            plain = httpx.get(f"{address}/ledger/verification", verify=NO_TLS, trust_env=False)
            assert "Damaged in" in plain.text, name
        page.goto(f"{address}/ledger")
        expect(page.locator(".notice.bad")).to_contain_text("This ledger is damaged.")
        expect(page.locator("tbody tr")).to_have_count(3)
        assert find_barriers(page) == ""


def test_a_line_that_was_edited_since_it_was_read_is_shown_as_damaged(small: Path) -> None:
    with OpenLedger.open(small) as ledger:
        ledger.refresh()
    edit_line(small, b'"b.txt"', b'"c.txt"')
    with serving(make_app(DataSource(ledger=small))) as address:
        found = httpx.get(f"{address}/ledger/entries/2", verify=NO_TLS, trust_env=False)
        assert found.status_code == 200
        assert "differs from what was signed" in found.text
        assert "No proof available" in found.text
        assert (
            httpx.get(
                f"{address}/ledger/entries/2/proof", verify=NO_TLS, trust_env=False
            ).status_code
            == 500
        )
        other = httpx.get(f"{address}/ledger/entries/1", verify=NO_TLS, trust_env=False)
        assert "entry 1 differs" not in other.text


def test_harm_in_entries_neither_runs_nor_breaks_the_page(tmp_path: Path, page: Page) -> None:
    seal_files(tmp_path, "one", {"a.txt": b"of one\n"})
    ledger = seal_files(tmp_path, "other", {"a.txt": b"of the other\n"})
    with open_for_writing(tmp_path) as opened:
        row, other = find_trial(opened, "one"), find_trial(opened, "other")
        append_review(opened, row, "pass", reviewer="<b>ana</b>", note=HARM + LONG)
        seq = append_note(opened, HARM + LONG, author=HARM[:100])
        opened.refresh()
        said = withhold_trial(opened, other, Why(HARM, "ana")).seq
    dialogs = watch_dialogs(page)
    page.set_viewport_size(PHONE)
    with serving(make_app(DataSource(ledger=ledger))) as address:
        for path in (
            "",
            "/entries/1",
            f"/entries/{seq}",
            f"/entries/{other.seq}",
            f"/entries/{said}",
        ):
            response = page.goto(f"{address}/ledger{path}")
            assert response is not None
            assert response.status == 200, path
            assert not is_too_wide(page), path
            assert page.evaluate("window.hacked") is None
            assert "\u202e" not in page.content()
        expect(page.get_by_role("link", name=str(other.seq), exact=True)).to_be_visible()
    assert dialogs == []


def test_what_is_no_entry_leads_nowhere(small: Path) -> None:
    with serving(make_app(DataSource(ledger=small))) as address:
        for path in ("99", "-1", "x", "9" * 30, "%31%00", "%D9%A1", "1/raw/x", "1.5"):
            found = httpx.get(f"{address}/ledger/entries/{path}", verify=NO_TLS, trust_env=False)
            assert found.status_code == 404, path
        for query in ("before=x", "before=-1", "kind=nothing"):
            found = httpx.get(f"{address}/ledger?{query}", verify=NO_TLS, trust_env=False)
            assert found.status_code == 400, query


def test_a_job_has_no_ledger() -> None:
    with serving(make_app(DataSource())) as address:
        for path in ("/ledger", "/ledger/entries/1", "/ledger/verification"):
            found = httpx.get(address + path, verify=NO_TLS, trust_env=False)
            assert found.status_code == 404
            assert "this viewer shows jobs, not a ledger" in found.text
