"""The pages of boards, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from proctor.ledger.api import Ledger
from proctor.ledger.review import append_supersession
from proctor.report.board.text import COLUMNS
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.report.board_ledgers import DATASET, open_board_ledger, sit
from tests.web.browsing import serving
from tests.web.looking import follow

HOSTILE = '<img src=x onerror="document.title=1">'
BOARD = f"/boards/{DATASET.replace('@', '%40')}"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("boards")
    with open_board_ledger(place) as ledger:
        fill(ledger)
        ledger.refresh()
    return place / "ledger"


def fill(ledger: Ledger) -> None:
    for number in range(6):
        good, task = float(number % 3 > 0), f"task-{number % 3}"
        sit(ledger, f"one-{number}", good, task=task, model="provider/one")
    failed = sit(ledger, "two-0", None, task="task-0", model=HOSTILE)
    again = sit(ledger, "two-1", 0.5, task="task-0", model=HOSTILE)
    append_supersession(ledger, failed, again, "infrastructure", reason="no disk", author="ana")
    partial = {"completeness": "partial"}
    sit(ledger, "three", 1.0, task="task-1", source="harbor", record=partial)
    codes = ("base-substituted", "system-changed", "late-reward")
    sit(ledger, "five", 0.0, task="task-1", model="provider/five", findings=codes)
    slow = {"agent.configuration": {"timeout_multiplier": 2}}
    sit(ledger, "four", 1.0, task="task-1", experiment="later", record=slow)


@pytest.fixture
def address(directory: Path) -> Iterator[str]:
    with serving(make_app(DataSource(ledger=directory))) as found:
        yield found


def test_the_page_has_every_column_that_the_command_lists(page: Page, address: str) -> None:
    page.goto(f"{address}{BOARD}")
    headings = page.locator("table.board").first.locator("thead th").all_inner_texts()
    shown = [column.on_page for column in COLUMNS if column.on_page]
    assert headings[-len(shown) :] == shown
    cells = page.locator("tbody.row").first.locator("td[data-label]")
    labels = [cell.get_attribute("data-label") for cell in cells.all()]
    assert labels[-len(shown) :] == shown


def test_a_board_is_reached_and_leads_to_its_trials(page: Page, address: str) -> None:
    page.goto(address)
    follow(page, page.get_by_role("link", name="Boards"))
    follow(page, page.get_by_role("link", name=DATASET))
    assert page.get_by_role("heading", level=2).count() == 2
    row = page.locator("tbody.row").first
    assert "provider/one" in row.inner_text()
    assert "0.6667" in row.inner_text()
    assert row.locator("svg[role=img] circle").count() == 1
    follow(page, row.get_by_role("link", name="6", exact=True))
    links = page.locator("tbody a")
    assert links.count() == 6
    assert links.first.get_attribute("href") == "/trials/experiment-001/one-0"


def test_an_experiment_leads_to_its_boards_and_the_navigation_says_where_one_is(
    page: Page, address: str
) -> None:
    page.goto(f"{address}/experiments/experiment-001")
    current = page.locator("nav [aria-current]")
    assert current.all_inner_texts() == ["Experiments"]
    follow(page, page.locator("#live").get_by_role("link", name=DATASET))
    assert page.title() == f"Board of {DATASET} · proctor"
    assert current.all_inner_texts() == ["Boards"]


def test_superseded_partial_and_unlike_are_told(page: Page, address: str) -> None:
    page.goto(f"{address}{BOARD}")
    text = page.locator("main").inner_text()
    assert "2 listed = 1 counted + 1 superseded + 0 restarted" in text
    assert "partial records (diagnostic): not eligible for a leaderboard" in text
    assert "imported (harbor)" in text
    assert "separate from 1: timeout_multiplier 2, not default" in text


def test_only_an_alarm_is_red(page: Page, address: str) -> None:
    page.goto(f"{address}{BOARD}")
    row = page.locator("tbody.row", has_text="provider/five")
    tags = {
        "tag bad": ["alarm: late-reward"],
        "tag warn": ["notice: system-changed"],
        "tag soft": ["info: base-substituted"],
    }
    for kind, texts in tags.items():
        shown = row.locator(f'[class="{kind}"]').all_inner_texts()
        assert shown == [f"{text} 1" for text in texts]
    follow(page, row.get_by_role("link", name="1", exact=True))
    for kind, texts in tags.items():
        assert page.locator(f'tbody [class="{kind}"]').all_inner_texts() == texts


def test_a_list_of_trials_is_red_for_alarms_alone(page: Page, tmp_path: Path) -> None:
    with open_board_ledger(tmp_path) as ledger:
        sit(ledger, "alarmed", findings=("output-cut", "late-reward"))
        sit(ledger, "noticed", findings=("output-cut", "system-changed"))
        sit(ledger, "told", findings=("output-cut",))
        ledger.refresh()
    with serving(make_app(DataSource(ledger=tmp_path / "ledger"))) as found:
        page.goto(f"{found}/experiments/experiment-001?view=trials")
        tags = page.locator("table.wide .tag")
        assert [(tag.get_attribute("class"), tag.inner_text()) for tag in tags.all()] == [
            ("tag bad", "1 finding, alarm"),
            ("tag warn", "1 finding"),
        ]
        # What all of them have is said once, above the list.
        once = "output-cut in 3 of 3 trials: A command printed more than is kept."
        assert page.get_by_text(once).count() == 1


def test_a_hostile_name_is_only_a_text(page: Page, address: str) -> None:
    page.goto(f"{address}{BOARD}")
    assert page.title() == f"Board of {DATASET} · proctor"
    assert HOSTILE in page.locator("main").inner_text()
    assert page.locator("main img").count() == 0


def test_an_earlier_position_is_shown(page: Page, address: str) -> None:
    page.goto(f"{address}{BOARD}?at=3")
    assert "at 3 entries" in page.locator("main").inner_text()
    assert page.locator("tbody.row").count() == 1
    page.get_by_label("At position").fill("4")
    follow(page, page.get_by_role("button", name="Show"))
    assert "at 4 entries" in page.locator("main").inner_text()


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/boards/nope", 404, "there is no dataset 'nope'"),
        (f"{BOARD}?at=x", 400, "at is 'x'; expected a log size, a whole number"),
        (f"{BOARD}?at=99999", 400, "expected a position from 1 to"),
        (f"{BOARD}?row=9.9", 404, "there is no row '9.9'"),
        (f"{BOARD}?row=1.1&page=x", 400, "page is 'x'"),
    ],
)
def test_what_is_not_there_is_said(
    page: Page, address: str, path: str, status: int, said: str
) -> None:
    response = page.request.get(f"{address}{path}")
    assert response.status == status
    page.goto(f"{address}{path}")
    assert said in page.locator("main").inner_text()


def test_jobs_alone_have_no_boards(page: Page) -> None:
    with serving(make_app(DataSource())) as address:
        assert page.request.get(f"{address}/boards").status == 404


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("query", ["", "?row=1.1"])
def test_it_can_be_read_by_everybody(page: Page, address: str, width: int, query: str) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{address}{BOARD}{query}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert Axe().run(page).response["violations"] == []
