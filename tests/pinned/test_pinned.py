"""Outputs that must not change by accident: what commands print and write, and what pages show.

A test of facts (JSON, files, numbers on pages) that fails is a defect, unless a format was changed
on purpose. A test of words that fails asks whether the new words are meant. In both cases
`python -m tests.pinned.update` writes the golden files anew, and git shows what changed.
"""

import pytest

from tests.pinned.cases import CASES, PAGES, Case, PageCase
from tests.pinned.golden import GOLDEN, find_belonging, find_golden, load_golden
from tests.pinned.observing import FACTS, observe_facts, observe_page, observe_words
from tests.pinned.update import main as update
from tests.pinned.workspace import Workspace, make_workspace

LARGEST_GOLDEN = 3_000_000
"""Bytes of all golden files together."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("pinned").resolve())


def check(found: dict[str, str], expected: set[str]) -> None:
    """Compare with the golden files, which must be exactly these."""
    for name, text in found.items():
        assert text == load_golden(name), f"{name} changed; see tests/pinned/test_pinned.py"
    assert set(found) == expected


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.has_facts], ids=lambda case: case.name
)
def test_the_facts_of_a_command_are_as_before(case: Case, workspace: Workspace) -> None:
    check(observe_facts(case, workspace), find_belonging(case.name, FACTS))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.has_text], ids=lambda case: case.name
)
def test_the_words_of_a_command_are_as_before(case: Case, workspace: Workspace) -> None:
    check(observe_words(case, workspace), find_belonging(case.name, ("text",)))


@pytest.mark.parametrize("case", PAGES, ids=lambda case: case.name)
def test_the_numbers_and_words_of_a_page_are_as_before(
    case: PageCase, workspace: Workspace
) -> None:
    check(observe_page(case, workspace), find_belonging(case.name, ("pages", "words")))


def test_every_golden_file_belongs_to_a_case() -> None:
    names = [case.name for case in CASES] + [page.name for page in PAGES]
    assert len(set(names)) == len(names)
    folders = (*FACTS, "text", "words")
    belonging = set().union(*(find_belonging(name, folders) for name in names))
    assert find_golden() - belonging == set()


def test_the_golden_files_stay_small() -> None:
    sizes = [path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file()]
    assert sum(sizes) < LARGEST_GOLDEN


def test_an_update_in_ci_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: load_golden(name) for name in find_golden()}
    assert update({"CI": "true"}) == 2
    assert "not updated in CI" in capsys.readouterr().err
    assert {name: load_golden(name) for name in find_golden()} == before


def test_times_of_stored_data_are_not_replaced(workspace: Workspace) -> None:
    began = f"{workspace.began:%Y-%m-%dT%H:%M:%S.%fZ}"
    text = f"2026-11-15T18:58:01.196659Z {began} {workspace.root}/jobs"
    assert workspace.normalise(text) == "2026-11-15T18:58:01.196659Z <now> <workspace>/jobs"
