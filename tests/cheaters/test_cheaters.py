"""No cheat scores unseen, none reaches the host; the page says what became of each."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.become_user import ROOT
from tests.cheaters.pack import HERE, find_faults, load_cheaters, load_outcomes, render_cell
from tests.cheaters.page import PAGE, parse_page, render_page
from tests.cheaters.runs import SANDBOX, SANDBOX_USER, Site, run_pack
from tests.cheaters.sites import DOCKER, SITES, find_obstacle_to, opened
from tests.cheaters.theirs import TITLE, is_for_harbor, run_harbor
from tests.cli.programs import run_child
from tests.ordinary_user import ordinary_home
from tests.parity.theirs import started

CHEATERS = load_cheaters()
HONEST = ROOT / "examples" / "tasks"
BY_ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give the sandboxes a small disk of their own"
)


@pytest.fixture
def home() -> Iterator[Path]:
    with ordinary_home() as directory:
        yield directory


@pytest.mark.parametrize(
    ("site", "every"),
    [(SANDBOX, 4), (SANDBOX_USER, 9), (DOCKER, 12)],
    ids=["sandbox", "sandbox-user", "docker"],
)
def test_no_cheat_scores_unseen_or_reaches_the_host(site: Site, every: int, home: Path) -> None:
    check_cheats(site, home, list(CHEATERS)[::every])


@pytest.mark.soak
@pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)
def test_no_cheat_of_all_does(site: Site, home: Path) -> None:
    check_cheats(site, home, list(CHEATERS))


def check_cheats(site: Site, home: Path, names: list[str]) -> None:
    if obstacle := find_obstacle_to(site):
        pytest.skip(obstacle)
    with opened(site) as ready:
        outcomes, faults = run_pack(ready, home, names)
    shown = parse_page(PAGE.read_text())[site.title]
    for name in names:
        cheater = CHEATERS[name]
        faults += find_faults(cheater, site.name, outcomes.get(name))
        if name in outcomes and shown.get(name) != (
            is_so := render_cell(cheater, site.name, outcomes[name])
        ):
            faults.append(f"{name}: the page says {shown.get(name)!r}, and it is {is_so!r}")
    assert faults == [], "`make cheaters` writes the page anew, if it is the page that is wrong"


@pytest.mark.soak
@BY_ROOT
def test_ten_gigabytes_of_output_are_cut(home: Path) -> None:
    outcomes, faults = run_pack(SANDBOX, home, ["flood"], flood=10_000_000_000)
    assert faults + find_faults(CHEATERS["flood"], SANDBOX.name, outcomes["flood"]) == []
    kept = sum(path.stat().st_size for path in home.glob("jobs/**/*") if path.is_file())
    assert kept < 64 << 20


@pytest.mark.soak
@BY_ROOT
def test_harbor_gives_what_the_page_says(tmp_path: Path) -> None:
    with started(tmp_path) as harbor:
        cells = run_harbor(harbor, tmp_path / "jobs")
    assert cells == parse_page(PAGE.read_text())[TITLE]


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_who_does_not_cheat_is_not_flagged(tmp_path: Path, agent: str) -> None:
    words = ("-o", tmp_path / "jobs", "--job-name", "job", "-q", "--no-ledger")
    ran = run_child(
        "run", "-p", HONEST, "-a", agent, *words, env={"PROCTOR_CACHE": str(tmp_path / "cache")}
    )
    assert ran.code == 0, ran.err
    outcomes = load_outcomes(tmp_path / "jobs" / "job")
    assert {outcome.flags for outcome in outcomes.values()} == {frozenset()}


# The pack itself


@pytest.mark.parametrize("name", CHEATERS)
def test_a_cheater_is_a_task_that_says_what_it_tries(name: str) -> None:
    folder = HERE / name
    readme = (folder / "README.md").read_text()
    for heading in ("**What it tries.**", "**Why it would work.**", "**What is expected.**"):
        assert heading in readme
    for path in ("task.toml", "environment/Dockerfile"):
        assert (folder / path).is_file()
    # A task of several steps has an instruction and a solution for each.
    for part in sorted(folder.glob("steps/*")) or [folder]:
        assert (part / "instruction.md").is_file()
        assert "answer-is-5f" not in (part / "solution" / "solve.sh").read_text()


def test_every_folder_of_the_pack_is_a_cheater() -> None:
    folders = {path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(CHEATERS)
    assert len(CHEATERS) >= 75


def test_the_page_has_every_cheater_and_the_text_of_its_writer() -> None:
    columns = parse_page(text := PAGE.read_text())
    cells = {title: columns[title] for title in [*(site.title for site in SITES), TITLE]}
    assert render_page(CHEATERS, cells) == text
    assert {name for name, cell in columns[TITLE].items() if cell != "not run"} == {
        name for name, cheater in CHEATERS.items() if is_for_harbor(cheater)
    }
