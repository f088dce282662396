"""Every forgery against every command: what docs/assurance/forged.md says is what is measured."""

from pathlib import Path

import pytest

from proctor.report.policy.document import load_policy
from proctor.task.digests import load_digests
from tests.forged.forgeries import FORGERIES
from tests.forged.honest import POLICY, TASKS, HandedIn, make_honest
from tests.forged.measures import MEASURES, RERUN
from tests.forged.page import (
    HONEST,
    NOTHING,
    PAGE,
    Rows,
    measure_one,
    measure_pack,
    parse_page,
    render_page,
)

QUICK = [measure for measure in MEASURES if measure.title != RERUN]
AGAIN = [measure for measure in MEASURES if measure.title == RERUN]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> HandedIn:
    return make_honest(tmp_path_factory.mktemp("pack") / "honest")


@pytest.fixture(scope="module")
def page() -> Rows:
    return parse_page(PAGE.read_text())


def test_the_page_says_what_the_commands_say(honest: HandedIn, page: Rows, tmp_path: Path) -> None:
    measured = measure_pack(honest, tmp_path, QUICK)
    assert set(measured.pop(HONEST.name).values()) == {NOTHING}
    titles = [measure.title for measure in QUICK]
    assert measured == {
        name: {title: cells[title] for title in titles} for name, cells in page.items()
    }


def test_a_forgery_that_is_run_again_is_what_the_page_says(
    honest: HandedIn, page: Rows, tmp_path: Path
) -> None:
    forgery = next(each for each in FORGERIES if each.name == "edited-everywhere")
    said = page[forgery.name][RERUN]
    assert measure_one(forgery, honest, tmp_path / "copy", AGAIN) == {RERUN: said}


@pytest.mark.soak
def test_the_whole_pack_run_again_tells_what_the_page_says(
    honest: HandedIn, page: Rows, tmp_path: Path
) -> None:
    measured = measure_pack(honest, tmp_path, AGAIN)
    assert measured.pop(HONEST.name) == {RERUN: NOTHING}
    assert measured == {name: {RERUN: cells[RERUN]} for name, cells in page.items()}


def test_the_text_of_the_page_is_its_own(page: Rows) -> None:
    assert render_page(page) == PAGE.read_text()


def test_the_pack_has_twenty_forgeries_and_tells_which_nothing_catches(page: Rows) -> None:
    assert len({forgery.name for forgery in FORGERIES}) == len(FORGERIES) >= 20
    uncaught = {name for name, cells in page.items() if set(cells.values()) == {NOTHING}}
    assert uncaught == {"passed-off", "typed-in", "better-of-two"}


def test_the_packs_policy_has_the_digests_of_its_tasks() -> None:
    rule = load_policy(str(POLICY)).tasks
    for task in sorted(path for path in TASKS.iterdir() if path.is_dir()):
        digests = load_digests(task)
        assert rule.digests_of(task.name) == (
            f"sha256:{digests.lock_digest}",
            digests.task_checksum,
        )
