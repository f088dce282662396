"""A site of pages, and a report in one file, opened from a disk in a real browser."""

import shutil
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
from playwright.sync_api import Page

from proctor.errors import InputError
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trial
from proctor.ledger.review import append_review
from proctor.report.behaviour import summarise_trials
from proctor.report.document.facts import gather_facts
from proctor.report.runs import Run, load_job_run, load_sealed_run
from proctor.web.export import MOST_CHARACTERS, MOST_STEPS, make_pages, write_site
from tests.ledger.ledgers import EXPERIMENT, find_key
from tests.trial.changed import change, changes, differing
from tests.web.looking import PHONE, find_barriers, follow, is_too_wide, watch_dialogs
from tests.web.sealed import JOBS, copy_job, seal_files, seal_harm
from tests.web.sealed import seal_jobs as seal_some
from tests.web.traces import HOSTILE, gave, ran, said, write_long, write_trial

SCRIPTED, ERRORS, STEPS = (
    "04-binary-scripted-k5",
    "06-errors-oracle-k1",
    "10-multistep-oracle-mounted",
)
TRIAL = "oracle-wrong__eEWHTg5"
HARM = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
ODD = "a b&c#d?e%2F'\"<i>é\u202e__1"
"""A name of a directory, which means something else in an address, in HTML and on a screen."""


def export(place: Path, runs: Sequence[Run], ledger: OpenLedger | None = None) -> Path:
    """The site of runs."""
    rows = [each for run in runs for each in run.trials]
    behaviour = summarise_trials(rows, ledger, lambda *_: None, is_alone=True)
    pages = make_pages(gather_facts(runs, behaviour), runs, behaviour, ledger, lambda *_: None)
    write_site(place, pages)
    return place


def export_jobs(place: Path, *jobs: Path) -> Path:
    return export(place, [load_job_run(str(job)) for job in jobs])


def export_sealed(place: Path, directory: Path, *experiments: str) -> Path:
    with OpenLedger.open(directory) as ledger:
        return export(place, [load_sealed_run(ledger, each) for each in experiments], ledger)


class Found(HTMLParser):
    """What is in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            self.ids += [value or ""] if name == "id" else []
            self.links += [value or ""] if name == "href" else []


CONTROLS = {"form", "button", "input", "select", "textarea", "dialog", "script", "link", "iframe",
            "img", "audio", "video", "object", "embed", "base"}  # fmt: skip


def crawl(site: Path) -> dict[str, str]:
    """Every page that the front page leads to; nothing in them leads nowhere or does nothing."""
    read: dict[Path, Found] = {}
    left = [site / "index.html"]
    while left:
        path = left.pop().resolve()
        if path in read:
            continue
        page = read[path] = Found(path.read_text())
        assert page.tags.isdisjoint(CONTROLS), (path, page.tags & CONTROLS)
        assert not {name for name in page.attributes if name.startswith(("on", "src", "action"))}
        for link in map(urlsplit, page.links):
            assert (link.scheme, link.netloc, link.query) == ("", "", ""), (path, link)
            target = path.parent / unquote(link.path) if link.path else path
            assert target.resolve().is_relative_to(site.resolve())
            assert target.is_file(), (path, link)
            left += [target] if link.path else []
            if link.fragment:
                there = page if target == path else Found(target.read_text())
                assert link.fragment in there.ids, (path, link)
    assert {path.resolve() for path in site.rglob("*.html")} == set(read)
    return {path.relative_to(site.resolve()).as_posix(): path.read_text() for path in read}


def test_every_page_of_real_jobs_is_reached_and_leads_somewhere(tmp_path: Path) -> None:
    pages = crawl(
        export_jobs(tmp_path / "site", *(JOBS / each for each in (SCRIPTED, ERRORS, STEPS)))
    )
    assert len(pages) == 1 + 15 + 15 + 9 + 5
    page = pages[f"trials/{SCRIPTED}/{TRIAL}.html"]
    assert f'<a href="../../traces/{SCRIPTED}/{TRIAL}.html">Trace</a>' in page
    assert '<a href="../../index.html">Report: ' in page
    for part in ("How the score was computed", "Phases", "Cost", "Integrity", "Files"):
        assert f">{part}</h2>" in page
    assert "proctor view" in page


def test_a_ledger_has_its_entries_reviews_and_evidence_without_dead_links(tmp_path: Path) -> None:
    directory = seal_some(tmp_path, SCRIPTED, ERRORS)
    with OpenLedger.open(directory, key=find_key(tmp_path)) as ledger:
        found = find_trial(ledger, f"{SCRIPTED}/{TRIAL}")
        append_review(ledger, found, "pass", reviewer="ana", note="read it")
    pages = crawl(export_sealed(tmp_path / "site", directory, SCRIPTED, ERRORS))
    page = pages[f"trials/{SCRIPTED}/{TRIAL}.html"]
    assert f"<dt>In the ledger</dt><dd>entry {found.seq} of " in page
    assert "read it" in page
    assert "verifier/reward.txt" in page
    assert "Append the review" not in page
    assert "?token=" not in page


def test_parts_of_a_trial_have_pages_of_their_own(tmp_path: Path) -> None:
    job = copy_job(tmp_path, STEPS)
    trial = next(each for each in sorted(job.iterdir()) if (each / "steps").is_dir())
    steps = sorted(each.name for each in (trial / "steps").iterdir())[:2]
    for step in steps:
        lines = [said(1, f"in {step}"), ran(1, "false"), gave(1, "", 1)]
        write_trial(job, trial.name, lines, f"steps/{step}/agent/trajectory.jsonl")
    pages = crawl(export_jobs(tmp_path / "site", job))
    stem = f"traces/{STEPS}/{trial.name}"
    assert f"in {steps[0]}" in pages[f"{stem}.html"]
    assert f"in {steps[1]}" in pages[f"{stem}~2.html"]
    assert f'"../../{stem}.html#step-1">First error' in pages[f"trials/{STEPS}/{trial.name}.html"]


def test_a_long_trace_is_cut_and_says_where_and_how_to_see_the_rest(tmp_path: Path) -> None:
    job = copy_job(tmp_path, SCRIPTED)
    write_long(job / TRIAL / "agent" / "trajectory.jsonl", 5000)
    text = "\n".join(f"line {number}" for number in range(2_000))
    other = write_trial(job, "pass-two__nfCW2fP", [gave(n, text) for n in range(1, 300)])
    assert other.stat().st_size > 2_000_000
    pages = crawl(export_jobs(tmp_path / "site", job))
    page = pages[f"traces/{SCRIPTED}/{TRIAL}.html"]
    assert f'id="step-{MOST_STEPS}"' in page
    assert f'id="step-{MOST_STEPS + 1}"' not in page
    assert "5,000 steps, 15,001 entries" in page
    left = 15_001 - 1 - 3 * MOST_STEPS
    rest = f"<code>proctor show {SCRIPTED}/{TRIAL} --step {MOST_STEPS + 1}-</code>"
    assert f"{left:,} entries are left out; {rest}" in page
    large = pages[f"traces/{SCRIPTED}/pass-two__nfCW2fP.html"]
    assert len(large) < 2 * MOST_CHARACTERS
    assert "--step 7 --full</code>" in large


def test_a_trace_that_cannot_be_read_does_not_keep_a_site_from_being_written(
    tmp_path: Path,
) -> None:
    job = copy_job(tmp_path, SCRIPTED)
    (job / TRIAL / "agent" / "trajectory.json").unlink()
    (job / TRIAL / "agent" / "trajectory.jsonl").write_bytes(b"\x00\xff not a trace\n")
    page = crawl(export_jobs(tmp_path / "site", job))[f"trials/{SCRIPTED}/{TRIAL}.html"]
    assert "no readable trace" in page


def test_nothing_that_is_not_for_others_gets_into_a_site(tmp_path: Path) -> None:
    """No place on this machine, no settings of the agent, no traceback, no facts of findings."""
    job = copy_job(tmp_path, ERRORS)
    error = {"exception_type": "E", "exception_message": "told", "exception_traceback": "SECRET-1"}
    files = {
        "result.json": msgspec.json.encode({"exception_info": error}),
        "agent/secret.log": b"SECRET-4",
        "changes.jsonl": changes(change("/etc/x", place="system")),
        "clean-room.json": differing(),
    }
    settings = {"agent.configuration": {"key": "SECRET-2"}, "inputs.instruction": "SECRET-3"}
    directory = seal_files(tmp_path, "one", files, **settings)
    pages = crawl(export_jobs(tmp_path / "site", job))
    pages |= crawl(export_sealed(tmp_path / "other", directory, EXPERIMENT))
    one = pages[f"trials/{EXPERIMENT}/one.html"]
    assert "told" in one
    assert "reward-planted" in one
    assert "agent/secret.log" in one
    assert "/etc/x" in one
    for name, page in pages.items():
        assert "SECRET" not in page, name
        assert "Traceback (most recent call last)" not in page, name
        assert str(tmp_path) not in page, name


def test_odd_names_and_hostile_texts_stay_text_in_a_browser(tmp_path: Path, page: Page) -> None:
    job = tmp_path / ODD
    shutil.copytree(JOBS / SCRIPTED, job)
    first, *others = sorted(each.name for each in job.iterdir() if each.is_dir())
    (job / first).rename(job / ODD)
    write_trial(job, ODD, HOSTILE)
    for each in (ODD, *others):
        (job / each / "verifier" / "test-stdout.txt").write_text(HARM)
    site = export_jobs(tmp_path / "site", job)
    crawl(site)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    dialogs = watch_dialogs(page)
    page.set_viewport_size(PHONE)
    page.goto((site / "index.html").as_uri())
    follow(page, page.locator("main a").first)
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        assert not is_too_wide(page), path
        assert page.title().endswith(" · proctor")
        assert page.locator("main img, main script, main svg[onload]").count() == 0
    assert (complaints, dialogs) == ([], [])


def test_a_sealed_trial_that_means_harm_can_be_exported(tmp_path: Path, page: Page) -> None:
    site = export_sealed(tmp_path / "site", seal_harm(tmp_path), EXPERIMENT)
    crawl(site)
    dialogs = watch_dialogs(page)
    page.set_viewport_size(PHONE)
    page.goto((site / "trials" / EXPERIMENT / "harm.html").as_uri())
    assert page.evaluate("window.hacked") is None
    assert not is_too_wide(page)
    assert dialogs == []


def test_a_site_opens_from_a_disk_without_script_and_without_barriers(
    tmp_path: Path, page: Page
) -> None:
    job = copy_job(tmp_path, SCRIPTED)
    lines = [said(1, HARM), ran(1, "x" * 3000, HARM), gave(1, "", 1, stderr=HARM + "\x1b[2J")]
    for trial in job.glob("*__*"):
        write_trial(job, trial.name, lines)
    site = export_jobs(tmp_path / "site", job)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    assert page.title() == f"Report: {SCRIPTED} · proctor"
    assert find_barriers(page) == ""
    follow(page, page.get_by_role("link", name=TRIAL).first)
    assert page.title() == f"{TRIAL} · {SCRIPTED} · proctor"
    assert find_barriers(page) == ""
    follow(page, page.get_by_role("link", name="First error, step 1"))
    assert "onerror=" in page.locator("#entry-0 pre").inner_text()
    assert find_barriers(page) == ""
    follow(page, page.get_by_role("link", name=f"Report: {SCRIPTED}"))
    assert {urlsplit(url).scheme for url in requests} == {"file"}
    assert len(requests) == 4


def test_a_site_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    def pages() -> Iterator[tuple[str, str]]:
        yield "index.html", "one"
        yield "../outside.html", "two"

    with pytest.raises(InputError, match="cannot be written"):
        write_site(tmp_path / "site", pages())
    assert list(tmp_path.iterdir()) == []
