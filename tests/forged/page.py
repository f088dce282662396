"""docs/assurance/forged.md: written from a run of the whole pack, and read again by its tests.

    python -m tests.forged.page      forges everything, asks every command, writes the page

Its text is page.md; its tables are what the commands said. Nothing in it is another in the next
run.
"""

import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.forged.forgeries import FORGERIES, Forgery
from tests.forged.honest import HERE, HandedIn, copy_to, make_honest
from tests.forged.measures import MEASURES, Measure, Reasons, measure

PAGE = HERE.parents[1] / "docs" / "assurance" / "forged.md"
TEXT = HERE / "page.md"
NOTHING = "—"
HONEST = Forgery("honest", "nothing", lambda _: None)

type Rows = dict[str, dict[str, str]]
"""Cells by the names of forgeries, and in each by the titles of commands."""


def main() -> None:
    """Forge everything, and write the page."""
    with tempfile.TemporaryDirectory() as place:
        honest = make_honest(Path(place, "honest"))
        rows = measure_pack(honest, Path(place, "forged"), MEASURES)
    faults = {title: cell for title, cell in rows.pop(HONEST.name).items() if cell != NOTHING}
    if faults:
        sys.exit(f"the honest submission is refused: {faults}")
    PAGE.write_text(render_page(rows))


def measure_pack(honest: HandedIn, place: Path, measures: Iterable[Measure]) -> Rows:
    """What every command says of every forgery, and of the honest submission."""
    asked = list(measures)
    return {
        forgery.name: measure_one(forgery, honest, place / forgery.name, asked)
        for forgery in [HONEST, *FORGERIES]
    }


def measure_one(
    forgery: Forgery, honest: HandedIn, place: Path, measures: Iterable[Measure]
) -> dict[str, str]:
    """What commands say of one forgery, by their titles."""
    handed = copy_to(honest, place)
    forgery.forge(handed)
    return {each.title: _cell(measure(handed, each)) for each in measures}


def _cell(reasons: Reasons) -> str:
    return ", ".join(f"`{reason}`" for reason in reasons) or NOTHING


def render_page(rows: Mapping[str, Mapping[str, str]]) -> str:
    """The page."""
    lines = ["| forgery | what is forged | reported by |", "|---|---|---|"]
    lines += [
        f"| {forgery.name} | {forgery.does} | {_render_cells(rows[forgery.name])} |"
        for forgery in FORGERIES
    ]
    uncaught = [
        f"- `{forgery.name}`: {forgery.does}."
        for forgery in FORGERIES
        if set(rows[forgery.name].values()) == {NOTHING}
    ]
    text = TEXT.read_text().replace("TABLE", "\n".join(lines), 1)
    return text.replace("NOTHING", "\n".join(uncaught), 1)


def _render_cells(cells: Mapping[str, str]) -> str:
    """`audit: reasons; verify, verify --since: reasons`: commands that say the same together."""
    titles: dict[str, list[str]] = {}
    for title in (each.title for each in MEASURES):
        if cells[title] != NOTHING:
            titles.setdefault(cells[title], []).append(title)
    return "; ".join(f"{', '.join(said)}: {cell}" for cell, said in titles.items()) or NOTHING


def parse_page(text: str) -> Rows:
    """The cells of the page's table."""
    table = text[text.index("| forgery |") :].partition("\n\n")[0]
    found: Rows = {}
    for line in table.splitlines()[2:]:
        name, _, reported = (cell.strip() for cell in line.strip("|").split("|"))
        cells = dict.fromkeys((each.title for each in MEASURES), NOTHING)
        if reported != NOTHING:
            for part in reported.split("; "):
                titles, _, cell = part.partition(": ")
                cells |= dict.fromkeys(titles.split(", "), cell)
        found[name] = cells
    return found


if __name__ == "__main__":
    main()
