"""The page of a trace of 50,000 steps in Chromium: how long until a reader sees its first step.

Counted is the whole navigation, from the address to the paint that has the first step on the
screen, by the browser's own clock; the viewer is a process of its own that has not seen the trace
before. Beside it, in turns, the same browser opens the same page from a plain server that was given
all answers ready-made. Without a bar: how long the server takes for the page, what the page brings
with it, and how long a link to a step near the end takes.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, Request

from benchmarks.bench import Bench, BenchmarkError
from benchmarks.floor_pages import ANSWERS
from benchmarks.row import Row, share_of
from benchmarks.viewers import Viewer, our_viewer, static_server
from tests.web.browsing import open_browser
from tests.web.traces import write_long

_MEGABYTE = 1_000_000
_JOB = "job"
_TRIAL = "trial__1"
_WATCH = """
addEventListener("DOMContentLoaded", () => requestAnimationFrame(function look() {
  const row = document.querySelector("article");
  const box = row?.getBoundingClientRect();
  if (!box || !box.height || box.top > innerHeight) return requestAnimationFrame(look);
  requestAnimationFrame((now) => { window.firstStepSeen = now; });
}));
"""
# The browser may list the paint a moment after the frame that has the step.
_SEEN = """() => window.firstStepSeen
  && performance.getEntriesByName("first-contentful-paint").length"""
_MEASURE = """() => {
  const page = performance.getEntriesByType("navigation")[0];
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const loaded = performance.getEntriesByType("resource");
  return {
    seen: Math.max(paint.startTime, window.firstStepSeen),
    paint: paint.startTime,
    server: page.responseEnd - page.requestStart,
    bytes: page.transferSize + loaded.reduce((sum, each) => sum + each.transferSize, 0),
  };
}"""


def trace_page_rows(bench: Bench, *, steps: int = 50_000) -> Iterator[Row]:
    """Seconds until the first step is seen, with its bar, and what they are made of."""
    if shutil.which("chromium") is None:
        raise BenchmarkError("chromium is not installed")
    job = _load_job(bench, steps)
    ours, static = [], []
    with open_browser() as browser, tempfile.TemporaryDirectory(dir=bench.data) as stored:
        _store_answers(browser, job, Path(stored))
        for _ in range(bench.rounds):
            ours.append(_open_page(browser, our_viewer(job)))
            static.append(_open_page(browser, static_server(Path(stored))))
        jump = min(_open_step(browser, job, steps) for _ in range(min(2, bench.rounds)))
    best, floor = (min(told, key=lambda each: each["seen"]) for told in (ours, static))
    name, other = "view-trace-50k", "the same page, served static"
    seen = floor["seen"] / 1000
    yield share_of(name, (best["seen"] / 1000, seen), other, at_most=3)
    yield share_of(f"{name}-server", (best["server"] / 1000, floor["server"] / 1000), other)
    yield share_of(f"{name}-jump", (jump / 1000, seen), other)
    size = (job / _TRIAL / "agent" / "trajectory.jsonl").stat().st_size
    sizes = best["bytes"] / _MEGABYTE, size / _MEGABYTE
    yield share_of(f"{name}-bytes", sizes, "the trace itself", unit="MB")


def _load_job(bench: Bench, steps: int) -> Path:

    def fill(directory: Path) -> None:
        job = directory / _JOB
        write_long(job / _TRIAL / "agent" / "trajectory.jsonl", steps)
        (job / _TRIAL / "trial.log").touch()
        (job / "config.json").write_text("{}", encoding="ascii")

    return bench.kept(f"view-trace-1-{steps}", fill) / _JOB


def _open_page(browser: Browser, server: AbstractContextManager[Viewer]) -> dict[str, float]:
    with _fresh_page(browser, server) as (page, address):
        _wait_for_step(page, address)
        found: dict[str, float] = page.evaluate(_MEASURE)
        return found


def _wait_for_step(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_function(_SEEN)


def _store_answers(browser: Browser, job: Path, directory: Path) -> None:
    """Keep everything that our viewer answers until the first step is seen."""
    finished: list[Request] = []
    answers: dict[str, tuple[str, str]] = {}
    with _fresh_page(browser, our_viewer(job)) as (page, address):
        page.on("requestfinished", lambda request: finished.append(request))
        _wait_for_step(page, address)
        for number, request in enumerate(list(finished)):
            if response := request.response():
                (directory / str(number)).write_bytes(response.body())
                kind = response.headers["content-type"]
                answers["/" + request.url.split("/", 3)[3]] = (str(number), kind)
    (directory / ANSWERS).write_text(json.dumps(answers), encoding="utf-8")


def _open_step(browser: Browser, job: Path, steps: int) -> float:
    """Milliseconds until a step near the end is seen, from the address on."""
    step = steps * 49 // 50
    with _fresh_page(browser, our_viewer(job)) as (page, address):
        page.goto(f"{address}#step-{step}")
        page.wait_for_selector(f'article[aria-label^="Step {step},"]')
        found: float = page.evaluate("() => performance.now()")
        return found


@contextmanager
def _fresh_page(
    browser: Browser, server: AbstractContextManager[Viewer]
) -> Iterator[tuple[Page, str]]:
    """A page without anything in its cache, and a server that has not been asked yet."""
    with server as viewer:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        try:
            page = context.new_page()
            page.add_init_script(_WATCH)
            yield page, f"{viewer.address}/trials/{_JOB}/{_TRIAL}/trace"
        finally:
            context.close()
