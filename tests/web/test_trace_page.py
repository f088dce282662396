"""The page of a trace, in a real browser."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, ViewportSize, expect

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.web.browsing import serving
from tests.web.traces import HOSTILE, LONG, gave, ran, said, write_trial

PHONE: ViewportSize = {"width": 390, "height": 844}


@contextmanager
def viewing(job: Path, trial: str = "trial__1") -> Iterator[str]:
    """The address of a trial in a job."""
    with serving(make_app(DataSource(jobs=(job,)))) as address:
        yield f"{address}/trials/{job.name}/{trial}"


def open_trace(page: Page, address: str, place: str = "") -> None:
    """Load the page, and wait until its script has taken over."""
    page.goto(f"{address}/trace{place}")
    page.wait_for_selector("#trace[data-ready]")


def position(page: Page, text: str) -> None:
    """Wait until the page says where the reader is."""
    expect(page.locator("#position")).to_have_text(re.compile(rf"^{text}"))


def in_view(page: Page, label: str) -> None:
    """Wait until an entry is on the screen."""
    expect(page.locator(f'article[aria-label^="{label}"]').first).to_be_in_viewport()


def test_a_long_trace_is_read_from_the_keyboard(page: Page, long_job: Path) -> None:
    with viewing(long_job) as address:
        open_trace(page, address)
        position(page, "step 0 of 50,000")
        for key, place in (
            ("j", "step 1 "), ("j", "step 2 "), ("k", "step 1 "), ("n", "step 97 "),
            ("n", "step 194 "), ("N", "step 97 "), ("G", "step 50,000 "), ("k", "step 50,000 "),
            ("k", "step 49,999 "), ("g", "step 0 "),
        ):  # fmt: skip
            page.keyboard.press(key)
            position(page, place)
        assert page.evaluate("() => document.querySelectorAll('article').length") < 200


def test_a_link_to_a_step_leads_there_and_follows_the_reader(page: Page, long_job: Path) -> None:
    with viewing(long_job) as address:
        open_trace(page, address, "#step-49000")
        in_view(page, "Step 49000, assistant")
        position(page, "step 49,000 of 50,000")
        page.keyboard.press("j")
        expect(page).to_have_url(re.compile("#step-49001$"))
        assert page.evaluate("() => document.activeElement.id").startswith("entry-")
        page.evaluate("() => { location.hash = '#entry-6' }")
        in_view(page, "Step 2, tool_result")
        position(page, "step 2 ")


def test_the_scroll_bar_tells_the_place(page: Page, long_job: Path) -> None:
    with viewing(long_job) as address:
        open_trace(page, address)
        page.evaluate(
            "() => { const s = document.getElementById('steps');"
            " s.scrollTop = (s.scrollHeight - s.clientHeight) / 2 }"
        )
        position(page, "step 25,0")
        page.mouse.move(600, 600)
        for _ in range(5):
            page.mouse.wheel(0, 300)
        position(page, "step 25,0")
        page.evaluate("() => { const s = document.getElementById('steps'); s.scrollTop = 1e9 }")
        in_view(page, f"Step {LONG}, tool_result")
        page.evaluate("() => { document.getElementById('steps').scrollTop = 0 }")
        in_view(page, "Step 0, system")


def test_filters_show_only_what_they_say(page: Page, long_job: Path) -> None:
    with viewing(long_job) as address:
        open_trace(page, address)
        expect(page.locator("#counts")).to_contain_text("50,000 steps, 150,001 entries, 515 errors")
        page.keyboard.press("x")
        position(page, "step 97 of 50,000, entry 1 of 1,545 shown")
        page.select_option("#role", "tool_result")
        position(page, "step 97 of 50,000, entry 1 of 515 shown")
        page.select_option("#tool", "edit")
        position(page, "step 485 of 50,000, entry 1 of 103 shown")
        expect(page).to_have_url(re.compile(r"role=tool_result&tool=edit&errors=1#entry-"))
        page.reload()
        page.wait_for_selector("#trace[data-ready]")
        position(page, "step 485 of 50,000, entry 1 of 103 shown")


def test_texts_are_found_in_the_whole_trace(page: Page, long_job: Path) -> None:
    with viewing(long_job) as address:
        open_trace(page, address)
        page.keyboard.press("/")
        page.keyboard.type("FILE_4444")
        page.keyboard.press("Enter")
        expect(page.locator("#found")).to_have_text("1 of 11")
        in_view(page, "Step 4444, tool_call")
        assert page.locator("mark").first.inner_text() == "file_4444"
        page.keyboard.press("Enter")
        expect(page.locator("#found")).to_have_text("2 of 11")
        in_view(page, "Step 44440, tool_call")
        page.keyboard.press("Shift+Enter")
        expect(page.locator("#found")).to_have_text("1 of 11")
        page.locator("#find").fill("nowhere at all")
        page.keyboard.press("Enter")
        expect(page.locator("#found")).to_have_text("nothing found")
        page.keyboard.press("Escape")
        expect(page.locator("mark")).to_have_count(0)


def test_long_outputs_fold_and_unfold(page: Page, tmp_path: Path) -> None:
    text = "\n".join(f"row {number}" for number in range(500))
    write_trial(tmp_path / "job", "t", [said(1, "hello"), ran(1, "seq 500"), gave(1, text)])
    with viewing(tmp_path / "job", "t") as address:
        open_trace(page, address)
        expect(page.locator("article", has_text="row 23")).to_be_visible()
        assert "row 250" not in page.locator("#window").inner_text()
        page.locator("button.unfold").click()
        expect(page.locator("#window")).to_contain_text("row 250")
        page.keyboard.press("f")
        expect(page.locator("#window")).not_to_contain_text("row 250")
        page.keyboard.press("E")
        expect(page.locator("#window")).to_contain_text("row 250")


def test_help_lists_the_keys(page: Page, tmp_path: Path) -> None:
    write_trial(tmp_path / "job", "t", [said(1, "hello")])
    with viewing(tmp_path / "job", "t") as address:
        open_trace(page, address)
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("next, previous error")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.mark.parametrize("has_script", [True, False])
def test_a_hostile_trace_stays_text(browser: Browser, tmp_path: Path, has_script: bool) -> None:
    write_trial(tmp_path / "job", "t", HOSTILE)
    (tmp_path / "job" / "t" / "artifacts").mkdir()
    (tmp_path / "job" / "t" / "artifacts" / "shot.png").write_bytes(b"\x89PNG")
    alarms: list[str] = []
    with viewing(tmp_path / "job", "t") as address:
        context = browser.new_context(java_script_enabled=has_script, viewport=PHONE)
        page = context.new_page()

        def refuse(dialog: Dialog) -> None:
            alarms.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", refuse)
        page.on("pageerror", lambda error: alarms.append(str(error)))
        page.on("console", lambda told: alarms.append(told.text) if told.type == "error" else None)
        page.goto(f"{address}/trace")
        page.wait_for_selector("#trace[data-ready]" if has_script else "article")
        text = page.locator("#window").inner_text()
        assert "<script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }} ]]>" in text
        assert "\\x1b]0;title\\x07\\x1b[2Jred \\x9b31m" in text
        assert "left \\u202egnp.exe\\u202c \\u2066inner\\u2069 \\u200bzero \\ufeff" in text
        assert "after the torn line" in text
        assert not set("\x1b\x9b\u202e\u2066") & set(page.content())
        assert page.locator("#window script, #window img, #window svg").count() == 0
        assert page.locator("p.media a").count() == 1
        assert page.get_by_role("link", name="shot.png").get_attribute("href") == (
            "/trials/job/t/files/artifacts/shot.png"
        )
        width = page.locator("body").bounding_box()
        assert width is not None
        assert width["width"] <= PHONE["width"]
        # As wide as the screen, whatever stands in it: nothing has to be scrolled sideways.
        assert page.locator("#window").evaluate("(node) => node.scrollWidth") <= PHONE["width"]
        assert [alarm for alarm in alarms if "favicon" not in alarm and "404" not in alarm] == []
        context.close()


def test_without_script_it_is_a_plain_list(browser: Browser, long_job: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    with viewing(long_job) as address:
        page.goto(f"{address}/trace")
        expect(page.locator("article")).to_have_count(40)
        page.get_by_role("link", name="next").click()
        expect(page.locator(".paging")).to_contain_text("Entries 41 to 80 of 150,001")
        page.get_by_role("link", name="last").click()
        expect(page.locator("article").last).to_contain_text("line 4 of file 50000")
        page.select_option("#tool", "edit")
        page.check("#errors")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("article").first).to_contain_text("485")
        expect(page.locator(".paging")).to_contain_text("of 206")
    context.close()


def test_parts_conversations_and_what_was_passed_over_are_said(page: Page, tmp_path: Path) -> None:
    job = tmp_path / "job"
    write_trial(job, "t", [said(1, "in the first")], "steps/one/agent/trajectory.jsonl")
    write_trial(job, "t", ["not json"], "steps/two/agent/trajectory.jsonl")
    write_trial(
        job, "t",
        [{"role": "user", "content": "do it"}, {"role": "assistant", "content": "spoken"}],
        "steps/two/agent/conversation.jsonl",
    )  # fmt: skip
    with viewing(job, "t") as address:
        open_trace(page, address)
        expect(page.locator("#window")).to_contain_text("in the first")
        page.get_by_role("link", name="two").click()
        page.wait_for_selector("#trace[data-ready]")
        expect(page.locator("#window")).to_contain_text("spoken")
        expect(page.locator(".trace-head")).to_contain_text("conversation")
        expect(page.locator(".trace-head")).to_contain_text("Skipped")


def test_damaged_lines_are_said(page: Page, tmp_path: Path) -> None:
    write_trial(tmp_path / "job", "t", [said(1, "one"), '{"role":', said(2, "two")])
    with viewing(tmp_path / "job", "t") as address:
        open_trace(page, address)
        expect(page.locator("#damage summary")).to_have_text(
            "1 line or value could not be read exactly"
        )
        expect(page.locator(".entry-note")).to_contain_text("line 2")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_barriers(browser: Browser, long_job: Path, scheme: str) -> None:
    context = browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    page = context.new_page()
    with viewing(long_job) as address:
        open_trace(page, address, "#step-97")
        position(page, "step 97")
        assert axe_problems(page) == []
    context.close()


def axe_problems(page: Page) -> list[str]:
    """What axe finds wrong with a page."""
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def test_wrong_questions_get_sentences(page: Page, tmp_path: Path) -> None:
    write_trial(tmp_path / "job", "t", [said(1, "one")])
    with viewing(tmp_path / "job", "t") as address:
        for place, status, words in (
            ("/steps?from=x", 400, "expected a whole number"),
            ("/steps?around=here", 400, "expected step-12 or entry-40"),
            ("/steps?part=other", 404, "has no part"),
            ("/find?q=" + "a" * 600, 400, "expected at most 500"),
        ):
            answer = page.request.get(address + place)
            assert answer.status == status
            assert words in json.loads(answer.text())["problem"]
        assert page.request.get(f"{address}/trace?from=-1").status == 400
        assert page.request.get(f"{address}x/trace").status == 404


def test_a_trace_that_grows_is_seen_to_grow(page: Page, tmp_path: Path) -> None:
    path = write_trial(tmp_path / "job", "t", [said(1, "one")])
    with viewing(tmp_path / "job", "t") as address:
        assert page.request.get(f"{address}/steps").json()["total"] == 1
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(said(2, "two")) + "\n")
        answer = page.request.get(f"{address}/steps").json()
        assert [row["step"] for row in answer["rows"]] == [1, 2]
        path.unlink()
        assert page.request.get(f"{address}/steps").status == 404


def printed(text: str) -> str:
    """A line of what a command printed."""
    return json.dumps({"role": "output", "step": 0, "stdout": text})


def test_the_page_of_a_running_trial_follows_what_comes(page: Page, tmp_path: Path) -> None:
    job = tmp_path / "job"
    (job / "trial__1").mkdir(parents=True)
    with viewing(job) as address:
        page.goto(f"{address}/trace")
        expect(page.get_by_role("status")).to_contain_text("no trace yet")
        name = "agent/proctor-output.jsonl"
        trace = write_trial(job, "trial__1", [printed("the first line\n")], name)
        page.wait_for_selector("#trace[data-ready]")
        expect(page.locator("#running")).to_contain_text("new entries appear")
        expect(page.locator(".facts-line")).to_contain_text("command output")
        with trace.open("a") as file:
            file.writelines(f"{printed(f'line {number}')}\n" for number in range(300))
        # The end was on the screen, so it is now.
        expect(page.get_by_text("line 299", exact=True)).to_be_in_viewport()
        expect(page.locator("#counts")).to_contain_text("0 steps, 301 entries")
        position(page, "entry 301 of 301")
        page.keyboard.press("g")
        position(page, "entry 1 of 301")
        with trace.open("a") as file:
            file.write(f"{printed('while reading above')}\n")
        expect(page.locator("#counts")).to_contain_text("302 entries")
        position(page, "entry 1 of 302")
        # At its end, the agent's own trace is fetched, and goes first.
        write_trial(job, "trial__1", [said(1, "I did it.")])
        (job / "trial__1" / "result.json").write_text("{}")
        expect(page.get_by_text("I did it.")).to_be_visible()
        assert page.locator("#running").count() == 0
