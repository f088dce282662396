"""The first page."""

from pathlib import Path

from playwright.sync_api import Page

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.web.browsing import serving

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"


def test_the_first_page_names_the_jobs(page: Page) -> None:
    with serving(make_app(DataSource(jobs=(JOBS / "04-binary-scripted-k5",)))) as address:
        page.goto(address)
        assert page.title() == "Jobs · proctor"
        assert page.get_by_role("link", name="04-binary-scripted-k5").is_visible()


def test_a_host_of_another_name_is_refused(page: Page) -> None:
    with serving(make_app(DataSource())) as address:
        response = page.request.get(address, headers={"Host": "evil.example"})
        assert response.status == 400
