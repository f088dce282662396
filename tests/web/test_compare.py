"""The page that compares two experiments."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.web.browsing import serving
from tests.web.looking import follow

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
NAMES = ("03-binary-oracle-k5", "04-binary-scripted-k5", "42-config-multi")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(make_app(DataSource(jobs=tuple(JOBS / name for name in NAMES)))) as found:
        yield found


def test_two_experiments_are_chosen_and_compared(page: Page, address: str) -> None:
    page.goto(f"{address}/compare")
    page.get_by_label("A", exact=True).select_option(NAMES[0])
    page.get_by_label("B", exact=True).select_option(NAMES[1])
    follow(page, page.get_by_role("button", name="Compare"))
    assert page.get_by_text("+0.067, 95% interval [-0.6, 0.4], over 3 tasks").last.is_visible()
    assert page.locator("svg[role=img]").count() == 2
    pair = page.get_by_role("link", name="-0.6")
    assert pair.get_attribute("href") == (
        "/diff?a=03-binary-oracle-k5/oracle-wrong__DGM3zwT"
        "&b=04-binary-scripted-k5/oracle-wrong__eEWHTg5"
    )
    link = page.get_by_role("link", name="oracle-wrong__eEWHTg5")
    assert link.get_attribute("href") == "/trials/04-binary-scripted-k5/oracle-wrong__eEWHTg5"


def test_a_page_of_numbers_is_readable_on_a_phone_and_by_a_screen_reader(
    page: Page, address: str
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/compare?a={NAMES[0]}&b={NAMES[1]}")
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    assert Axe().run(page).violations_count == 0


def test_what_is_not_alike_is_said_and_the_form_has_the_way_out(page: Page, address: str) -> None:
    page.goto(f"{address}/compare?a={NAMES[0]}&b={NAMES[2]}&group_b=oracle")
    assert "3 tasks only in B" in page.get_by_role("alert").inner_text()
    page.get_by_label("common tasks only").check()
    page.get_by_label("agent and model").select_option(index=2)
    follow(page, page.get_by_role("button", name="Compare"))
    assert page.get_by_text("Left out, only in B: 3 tasks").is_visible()


@pytest.mark.parametrize("name", ["nowhere", "../03-binary-oracle-k5", "%00", "<script>"])
def test_an_experiment_that_is_not_there_is_not_found(page: Page, address: str, name: str) -> None:
    response = page.request.get(f"{address}/compare?a={NAMES[0]}&b={name}")
    assert response.status == 404
    assert "<script" not in response.text()
