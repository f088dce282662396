"""A site of pages, and a report in one file, opened from a disk in a real browser."""

import json
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from proctor.report.behaviour import summarise_attempts
from proctor.report.document.facts import gather_facts
from proctor.report.runs import load_job_run
from proctor.report.site.pages import make_pages
from proctor.report.site.writing import write_site
from proctor.web.style import load_style
from tests.web.looking import follow

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
HOSTILE = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
WIDE = "x" * 3000


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site of a job whose agent and verifier say what a page must not obey."""
    job = tmp_path / "job"
    shutil.copytree(JOBS / "04-binary-scripted-k5", job)
    for trial in job.glob("*__*"):
        lines = [
            {"role": "assistant", "step": 1, "content": HOSTILE},
            {"role": "tool_call", "step": 1, "tool_name": HOSTILE, "command": WIDE},
            {"role": "tool_result", "step": 1, "stderr": HOSTILE + "\x1b[2J", "exit_code": 1},
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (trial / "agent" / "trajectory.jsonl").write_text(text)
        (trial / "verifier" / "test-stdout.txt").write_text(HOSTILE)
    run = load_job_run(str(job))
    behaviour = summarise_attempts(run.attempts, None, lambda _what, _done, _of: None)
    pages = make_pages(
        gather_facts([run], behaviour), [run], behaviour, None, load_style(),
        lambda _what, _done, _of: None,
    )  # fmt: skip
    write_site(tmp_path / "site", pages)
    return tmp_path / "site"


def test_a_site_opens_from_a_disk_and_obeys_nothing_that_a_run_says(page: Page, site: Path) -> None:
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((site / "index.html").as_uri())
    assert page.title() == "Report: job · proctor"
    follow(page, page.get_by_role("link", name="oracle-wrong__eEWHTg5").first)
    page.get_by_text("step 1 · error").click()
    assert "onerror=" in page.locator("#step-1 pre").inner_text()
    assert page.title() == "oracle-wrong__eEWHTg5 · proctor"
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    assert page.locator("main img, main script").count() == 0
    assert complaints == []
    follow(page, page.get_by_role("link", name="Report: job"))
    assert Axe().run(page).violations_count == 0
