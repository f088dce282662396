"""Two trials beside each other, in a real browser."""

from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.web.browsing import serving
from tests.web.test_trace_page import PHONE, axe_problems
from tests.web.traces import gave, ran, said, write_output, write_trial


def write_two(job: Path) -> None:
    """Two runs that begin alike; the second is answered differently, and then acts differently."""
    same = [ran(1, "ls"), gave(1, "a.py"), ran(2, "cat a.py"), gave(2, "x = 1")]
    write_trial(job, "first", [
        *same, ran(3, "pytest"), gave(3, "1 failed", 1), ran(4, "sed -i s/1/2/ a.py"),
        gave(4, ""), ran(5, "pytest"), gave(5, "1 passed"),
    ])  # fmt: skip
    write_trial(job, "second", [
        *same, ran(3, "pytest"), gave(3, "2 failed <b>", 1),
        ran(4, "rm -rf <script>alert(1)</script>"), gave(4, ""),
        ran(5, "pytest"), gave(5, "1 passed"), said(6, "done"),
    ])  # fmt: skip


def test_two_trials_are_shown_where_they_part(page: Page, tmp_path: Path) -> None:
    write_two(tmp_path / "job")
    with serving(make_app(DataSource(jobs=(tmp_path / "job",)))) as address:
        page.goto(f"{address}/diff?a=job/first&b=job/second")
        expect(page.locator(".verdict")).to_contain_text(
            "The first 3 actions are the same; the environment's answer differs first."
        )
        expect(page.locator("#answer h2")).to_have_text(
            "Here the environment's answer differed first: action 3 was answered differently"
        )
        expect(page.locator("#answer")).to_contain_text("2 failed <b>")
        expect(page.locator("#action")).to_contain_text("rm -rf <script>alert(1)</script>")
        expect(page.locator("#action")).to_contain_text("sed -i s/1/2/ a.py")
        expect(page.locator(".stretch.apart").first).to_contain_text("1 only in A")
        expect(page.locator(".stretch.same")).to_contain_text("1 the same")
        link = page.locator("#action a", has_text="step 4").first.get_attribute("href")
        assert link == "/trials/job/first/trace#step-4"
        assert axe_problems(page) == []


def test_on_a_phone_the_two_are_one_above_the_other(browser: Browser, tmp_path: Path) -> None:
    write_two(tmp_path / "job")
    context = browser.new_context(viewport=PHONE)
    page = context.new_page()
    with serving(make_app(DataSource(jobs=(tmp_path / "job",)))) as address:
        page.goto(f"{address}/diff?a=job/first&b=job/second")
        left, right = page.locator("#action .side").all()
        upper, lower = left.bounding_box(), right.bounding_box()
        assert upper is not None
        assert lower is not None
        assert lower["y"] >= upper["y"] + upper["height"]
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]
    context.close()


def test_the_same_trial_twice_differs_in_nothing(page: Page, tmp_path: Path) -> None:
    write_two(tmp_path / "job")
    with serving(make_app(DataSource(jobs=(tmp_path / "job",)))) as address:
        page.goto(f"{address}/diff?a=job/first&b=job/first")
        expect(page.locator(".verdict")).to_contain_text("All actions are the same")


def test_outputs_are_shown_line_by_line(page: Page, tmp_path: Path) -> None:
    job = tmp_path / "job"
    for name, last in (("first", "passed"), ("second", "failed")):
        write_trial(job, name, [])
        for trace in (job / name / "agent").glob("trajectory*"):
            trace.unlink()
        write_output(job / name, "buil", "ding\n", f"{last}\n", code=0)
    with serving(make_app(DataSource(jobs=(job,)))) as address:
        page.goto(f"{address}/diff?a=job/first&b=job/second")
        expect(page.locator(".verdict")).to_contain_text(
            "The first line of the output is the same; then it differs."
        )
        expect(page.locator("#action h2")).to_have_text("Here the output differs: line 2")
        expect(page.locator("#action")).to_contain_text("failed")
        expect(page.locator(".heads")).to_contain_text("3 lines · command output")
        expect(page.locator(".stretch.apart").first).to_contain_text("passed")
        link = page.locator("#action a", has_text="line 2").first.get_attribute("href")
        assert link == "/trials/job/first/trace"


def test_who_is_not_named_is_asked_for(page: Page, tmp_path: Path) -> None:
    write_two(tmp_path / "job")
    with serving(make_app(DataSource(jobs=(tmp_path / "job",)))) as address:
        page.goto(f"{address}/diff?a=job/first")
        page.get_by_label("B").fill("job/second")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator(".verdict")).to_contain_text("differs first")
        for words, status in (("a=job&b=job/first", 400), ("a=job/none&b=job/first", 404)):
            assert page.request.get(f"{address}/diff?{words}").status == status
