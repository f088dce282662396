"""Every page, judged by axe-core, at the width of a phone and of a desk, in light and dark.

A new page gets its line in PAGES.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.web.browsing import serving
from tests.web.looking import follow
from tests.web.subjects import all_jobs, seal_jobs

PAGES = {
    "ledger": [
        "/",
        "/experiments/04-binary-scripted-k5",
        "/experiments/14-two-models?view=trials",
        "/nothing",
    ],
    "jobs": ["/", "/experiments/06-errors-oracle-k1", "/experiments/31-killed-before-resume"],
}
LOOKS = [(390, "light"), (1280, "dark")]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    ledger = seal_jobs(tmp_path_factory.mktemp("accessible") / "ledger")
    with (
        serving(make_app(DataSource(ledger=ledger))) as sealed,
        serving(make_app(DataSource(jobs=all_jobs()))) as jobs,
    ):
        yield {"ledger": sealed, "jobs": jobs}


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("kind", PAGES)
def test_nothing_stands_in_anybodys_way(
    browser: Browser, addresses: dict[str, str], kind: str, width: int, scheme: str
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 844},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    for path in PAGES[kind]:
        page.goto(addresses[kind] + path)
        check_page(page, path)
    context.close()


def check_page(page: Page, path: str) -> None:
    """Refuse what axe finds, and what makes a page wider than its window."""
    found = Axe().run(page)
    assert found.violations_count == 0, f"{path}: {found.generate_report()[:3000]}"
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 0, f"{path}: {width} pixels wider than the window"


def test_a_page_can_be_used_with_keys_alone(addresses: dict[str, str], page: Page) -> None:
    page.goto(addresses["jobs"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("multistep")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=multistep")
    page.get_by_role("link", name="10-multistep-oracle-mounted").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/experiments/10-multistep-oracle-mounted")


def test_a_page_is_whole_without_script(
    browser: Browser, addresses: dict[str, str], tmp_path: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{addresses['jobs']}/experiments/04-binary-scripted-k5")
    whole = page.locator("td.marks a").count()
    page.get_by_label("Outcome").select_option("full")
    follow(page, page.get_by_role("button", name="Show"))
    assert 0 < page.locator("td.marks a").count() < whole
    printed = tmp_path / "page.pdf"
    page.pdf(path=printed)
    assert printed.read_bytes().startswith(b"%PDF")
    context.close()
