"""Searching all traces, in a real browser."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from proctor.search.find import Scanner, fits_condition
from proctor.search.index import SearchIndex
from proctor.search.query import TrialCondition, parse_query
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.search import search_jobs
from tests.ledger.ledgers import ORIGIN, search_index_of
from tests.search.ledgers import anchors, ask, gave, lines, make_searched, ran, said
from tests.web.browsing import serving
from tests.web.test_trace_page import axe_problems

QUERIES = (
    "apt-get", "apt-get exit:!0", '"unable to locate"', "C++", "instal*", "compiler -C++",
    "update OR passwd", "tool:bash role:tool_call", "exit:0",
)  # fmt: skip


def test_what_a_ledger_holds_is_found_with_links_to_the_steps(page: Page, tmp_path: Path) -> None:
    ledger = make_searched(tmp_path)
    with serving(make_app(DataSource(ledger=ledger))) as address:
        page.goto(f"{address}/search")
        page.get_by_label("What to search for").fill("apt-get")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("status")).to_contain_text("2 matches in 2 trials, newest first")
        expect(page.locator("mark").first).to_have_text("apt-get")
        assert axe_problems(page) == []
        page.get_by_role("link", name=re.compile("worked, step 1")).click()
        page.wait_for_selector("#trace[data-ready]")
        expect(page.locator("#window")).to_contain_text("apt-get update")
        assert page.url.endswith("/trace#step-1")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("nosuch:thing", "is not a filter; expected one of role:"),
        ('"open', "has an unclosed quote"),
        ("experiment:x", "has nothing to search for"),
    ],
)
def test_a_query_that_is_none_gets_a_sentence_and_help(
    page: Page, tmp_path: Path, query: str, sentence: str
) -> None:
    with serving(make_app(DataSource(jobs=(tmp_path,)))) as address:
        page.goto(f"{address}/search?q={query}")
        expect(page.get_by_role("alert")).to_contain_text(sentence)
        expect(page.get_by_text("words with this prefix")).to_be_visible()


def write_job(job: Path) -> None:
    """The traces of the searched ledger, as a job."""
    for trial, steps in (
        ("failed", (
            said("I install a compiler for C++."), ran("sudo apt-get install -y g++"),
            gave("E: Unable to locate package g++", 100), ran("cat /etc/passwd foo_bar.py", 2),
            gave("root:x:0:0", 0, 2),
        )),
        ("worked", (ran("apt-get update"), gave("Hit: 1", 0))),
        ("idle", (said("Nothing to do; the c compiler is there."),)),
    ):  # fmt: skip
        path = job / trial / "agent" / "trajectory.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(lines(*steps))


def test_jobs_are_searched_by_the_rules_of_a_ledger(tmp_path: Path) -> None:
    ledger, job = make_searched(tmp_path), tmp_path / "job"
    write_job(job)
    for query in QUERIES:
        scanned = search_jobs(DataSource(jobs=(job,)), parse_query(query))
        found = {f"{hit.trial_id}#{hit.row.step} {hit.row.role}" for hit in scanned.hits}
        sealed = {each for each in anchors(ask(ledger, query)) if "#None" not in each}
        assert found == sealed, query
        assert scanned.is_all


def test_a_job_is_searched_without_a_ledger(page: Page, tmp_path: Path) -> None:
    write_job(tmp_path / "job")
    with serving(make_app(DataSource(jobs=(tmp_path / "job",)))) as address:
        page.goto(f"{address}/search?q=apt-get+exit:!0+trial:fail*")
        expect(page.get_by_role("status")).to_contain_text("1 match in 1 trial")
        expect(page.locator("main")).to_contain_text("the traces of 3 of 3 trials")
        expect(page.locator("main")).to_contain_text("proctor import harbor")
        page.get_by_role("link", name="job/failed, step 1").first.click()
        page.wait_for_selector("#trace[data-ready]")


def test_a_search_that_runs_out_of_time_says_what_it_left(tmp_path: Path) -> None:
    write_job(tmp_path / "job")
    scanned = search_jobs(DataSource(jobs=(tmp_path / "job",)), parse_query("apt-get"), seconds=-1)
    assert (scanned.looked, scanned.trials, scanned.is_all) == (0, 3, False)


def test_an_index_that_is_being_made_is_waited_for_by_the_page(page: Page, tmp_path: Path) -> None:
    ledger = make_searched(tmp_path)
    # Another process that writes to the index has it to itself.
    busy = SearchIndex.open(search_index_of(ledger), ORIGIN)
    busy.begin(after=0)
    with serving(make_app(DataSource(ledger=ledger))) as address:
        page.goto(f"{address}/search?q=apt-get")
        expect(page.locator("main")).to_contain_text("Building the search index")
        busy.close()
        # The page loads itself again: nobody has to ask twice.
        expect(page.get_by_role("status")).to_contain_text("2 matches", timeout=15_000)


@pytest.mark.parametrize(
    ("value", "told", "fits"),
    [
        ("fix-*", "org/fix-git", True), ("FIX-git", "org/fix-git", True), ("org", "org/fix", False),
        ("*git", "fix-git", True), ("f*x*t", "fix-git", True), ("g*", "fix-git", False),
    ],
)  # fmt: skip
def test_trials_are_chosen_as_in_a_ledger(value: str, told: str, fits: bool) -> None:
    assert fits_condition(TrialCondition("task", value), told) is fits
    assert fits_condition(TrialCondition("task", value, is_not=True), told) is not fits


def test_a_scanner_forgets_what_it_looked_at() -> None:
    with Scanner(parse_query("word")) as scanner:
        assert list(scanner.fitting([])) == []
