"""docs/assurance/cheaters.md: written from a run of the whole pack, and read again by its tests.

    python -m tests.cheaters.page      runs everything, writes the page

Its text is page.md; its table is what the runs gave. Nothing in it is another in the next run.
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cheaters.pack import HERE, Cheater, load_cheaters, render_cell
from tests.cheaters.runs import run_pack
from tests.cheaters.sites import SITES, opened
from tests.cheaters.theirs import TITLE, run_harbor
from tests.ordinary_user import ordinary_home
from tests.parity.theirs import started

PAGE = HERE.parents[1] / "docs" / "assurance" / "cheaters.md"
_CELL = re.compile(r"(?<!\\)\|")

TEXT = HERE / "page.md"
"""All of the page but the table, which stands where it says TABLE."""


def main() -> None:
    """Run the pack everywhere, and write the page."""
    columns = {}
    for site in SITES:
        with ordinary_home() as home, opened(site) as ready:
            outcomes, faults = run_pack(ready, home)
        for fault in faults:
            print(fault, file=sys.stderr)  # noqa: T201 - for whoever wrote the page
        columns[site.title] = {
            name: render_cell(cheater, site.name, outcomes[name])
            for name, cheater in load_cheaters().items()
        }
    with tempfile.TemporaryDirectory() as place, started(Path(place)) as harbor:
        columns[TITLE] = run_harbor(harbor, Path(place) / "jobs")
    PAGE.write_text(render_page(load_cheaters(), columns))


def render_page(cheaters: Mapping[str, Cheater], columns: Mapping[str, Mapping[str, str]]) -> str:
    """The page, with a column for each environment."""
    lines = [
        "| " + " | ".join(["cheater", "what it tries", *columns]) + " |",
        "|" + "---|" * (len(columns) + 2),
    ]
    for name, cheater in sorted(cheaters.items()):
        link = f"[{name}](../../tests/cheaters/{name}/README.md)"
        cells = [cells[name] for cells in columns.values()]
        lines.append("| " + " | ".join([link, cheater.tries, *cells]) + " |")
    text = TEXT.read_text().replace("TABLE", "\n".join(lines), 1)
    return text.replace("EXPLAINED", "\n".join(_explain(cheaters)), 1)


def _explain(cheaters: Mapping[str, Cheater]) -> Iterator[str]:
    """A line for each cheater that may score without an alarm."""
    for name, cheater in sorted(cheaters.items()):
        for site in SITES:
            why = cheater.expected(site.name).why
            if why and cheater.expected(site.name).reward == "1":
                yield f"- `{name}`, {site.title}: {why}."


def parse_page(text: str) -> dict[str, dict[str, str]]:
    """The columns of the page: cells by the names of cheaters."""
    rows = [
        [cell.strip() for cell in _CELL.split(line.strip("|\n"))]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    titles, _, *body = rows
    return {
        title: {row[0][1:].partition("]")[0]: row[number] for row in body}
        for number, title in enumerate(titles)
    }


if __name__ == "__main__":
    main()
