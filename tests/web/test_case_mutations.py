"""Every kind of byte of a case's data changed: the page and `proctor check` see the same."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from proctor.report.case.checking import check_case_file
from proctor.report.case.document import parse_case
from proctor.report.case.opened import open_case
from proctor.report.case.page import parse_page
from tests.report.cases import make_page

ABOUT_THE_PAGE = {"page-differs", "own-page"}
"""What the data alone does not tell."""
LETTERS = '0123456789abcdefABCDEF+/={}[]":,\\ \n\u00e9nulltruefalse'


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_page(tmp_path_factory.mktemp("case"))


@pytest.fixture
def opened(browser: Browser, honest: bytes, tmp_path: Path) -> Iterator[Page]:
    """The honest file, whose script is asked about other data."""
    path = tmp_path / "honest.html"
    path.write_bytes(honest)
    context = browser.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator(".verdict").wait_for()
    yield page
    context.close()


def places_in(text: str) -> dict[str, list[int]]:
    """Places of the data by what stands there: one list for each kind of byte."""
    keys = ("seq", "line", "leaf", "path", "sha256", "deflate", "checkpoint", "trial", "format")
    found: dict[str, list[int]] = {"anything": list(range(len(text)))}
    for key in keys:
        at = text.find(f'"{key}":')
        while at >= 0:
            end = text.find("\n", at)
            found.setdefault(key, []).extend(range(at, end if end >= 0 else len(text)))
            at = text.find(f'"{key}":', end)
    return found


def mutate(text: str, at: int, chance: random.Random) -> str:
    """The text with a letter changed, left out or doubled."""
    kind = chance.randrange(4)
    new = {0: "", 1: text[at] * 2}.get(kind, chance.choice(LETTERS))
    return text[:at] + new + text[at + 1 :]


def mutations(text: str, count: int) -> Iterator[str]:
    chance = random.Random(8)
    places = places_in(text)
    for number in range(count):
        kind = sorted(places)[number % len(places)]
        changed = mutate(text, chance.choice(places[kind]), chance)
        if changed != text:
            yield changed


def says_the_same(text: str, other: str) -> bool:
    """Whether two texts hold one case: the same in other words, such as a space more."""
    try:
        one, two = (parse_case(each, "data") for each in (text, other))
        first, second = open_case(one, "data"), open_case(two, "data")
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not the same
        return False
    parts = [(each.case.entries, each.case.checkpoint, each.files) for each in (first, second)]
    return parts[0] == parts[1]


def sees_the_page(page: Page, texts: list[str]) -> list[bool]:
    """Whether the page's script finds something wrong with each."""
    ask = """async (texts) => {
      const found = [];
      for (const text of texts) {
        const { checks } = await checkCase(text);
        found.push(checks.some((each) => each.state === "failed"));
      }
      return found;
    }"""
    answers: list[bool] = page.evaluate(ask, texts)
    return answers


def sees_check(honest: bytes, text: str, path: Path) -> bool:
    """Whether `proctor check` does."""
    path.write_bytes(honest.replace(parse_page(honest, "page").data.encode(), text.encode()))
    checked = check_case_file(str(path))
    codes = {found.code for found in checked.diagnostics if found.is_problem}
    return bool(codes - ABOUT_THE_PAGE)


def hold_against_both(page: Page, honest: bytes, path: Path, count: int) -> None:
    text = parse_page(honest, "page").data
    texts = list(mutations(text, count))
    for changed, in_page in zip(texts, sees_the_page(page, texts), strict=True):
        in_check = sees_check(honest, changed, path)
        assert in_page == in_check, json.dumps(changed)
        assert in_check or says_the_same(text, changed) or is_beside(text, changed)


def is_beside(text: str, changed: str) -> bool:
    """Whether only the words about who wrote it, or why something was left out, differ."""
    one, two = json.loads(text), json.loads(changed)
    for each in (one, two):
        for key in ("proctor", "script", "left_out"):
            del each[key]
    return bool(one == two)


def test_some_of_every_kind_of_byte(opened: Page, honest: bytes, tmp_path: Path) -> None:
    hold_against_both(opened, honest, tmp_path / "case.html", 120)


@pytest.mark.soak
def test_all_kinds_of_bytes_many_times(opened: Page, honest: bytes, tmp_path: Path) -> None:
    hold_against_both(opened, honest, tmp_path / "case.html", 4000)
