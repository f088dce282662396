"""Export runs as a static site: the report, and the viewer's pages of every trial.

    index.html                   the report, with a list of all trials
    trials/EXPERIMENT/TRIAL.html the page of a trial, as in the viewer
    traces/EXPERIMENT/TRIAL.html its trace; TRIAL~2.html is that of the second part, and so on
    proctor-site.json            the list of the site's files

It needs no server and no script: features that need a server are left out of the pages, and links
are relative. The same runs give the same bytes. The directory is written next to its destination,
then moved there atomically. Pages do not reveal paths of this machine.
"""

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from markupsafe import Markup

from proctor.contained import create_below
from proctor.errors import DamageError, InputError
from proctor.files import write_small
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.record.ids import make_id
from proctor.record.reasons import outcome_of
from proctor.report.behaviour import Behaviour, Watch
from proctor.report.document.document import render_report
from proctor.report.document.facts import ReportFacts
from proctor.report.page.blocks import Cell, Column, Document, Heading, Table
from proctor.report.page.figures import UNKNOWN, render_number, render_seconds, render_usd
from proctor.report.page.html import Links, make_policy
from proctor.report.page.html import render_page as render_document
from proctor.report.runs import Run
from proctor.report.symbols import mark_of, tone_of_codes
from proctor.sentence import count_of, reason_of
from proctor.traces.tool_errors import ToolError
from proctor.traces.trial_summary import TrialSummary
from proctor.trial.finding import level_of, sort_codes
from proctor.web.pages import load_style, render_text
from proctor.web.sanitize import shorten
from proctor.web.traces.cache import CachedTrace, open_traces
from proctor.web.traces.index import TraceIndex, build_index, label_turns
from proctor.web.traces.place import load_place
from proctor.web.traces.rows import Row, Showing, read_rows
from proctor.web.trial import gather
from proctor.web.trials.trial_view import load_trial

_MARKER: Final = "proctor-site.json"
_FORMAT: Final = "proctor-site-1"
# From a trial's or trace's page to the front page: all of them are two directories deep.
_UP: Final = "../../"

MOST_STEPS: Final = 400
"""Most steps of one trace on a page."""
MOST_ENTRIES: Final = 1600
MOST_CHARACTERS: Final = 400_000

_STYLES: Final = {name: load_style(name) for name in ("style.css", "trial.css", "trace.css")}
_POLICY: Final = make_policy(*_STYLES.values())


@dataclass(frozen=True, slots=True)
class _Frame:
    """Values shared by all pages of a site."""

    title: str
    """Title of the front page."""
    front: str = f"{_UP}index.html"
    policy: Markup = _POLICY


def make_pages(
    facts: ReportFacts,
    runs: Sequence[Run],
    behaviour: Behaviour,
    ledger: LedgerReader | None,
    watch: Watch,
) -> Iterator[tuple[str, str]]:
    """Yield every page as its relative name and its text."""
    rows = [each for run in runs for each in run.trials]
    names = _name_pages(rows)
    report = render_report(facts)
    document = Document(report.title, (*report.blocks, Heading("Trials"), _list_trials(rows)))
    links = Links(trial=lambda name: names[name].trial if name in names else None)
    yield "index.html", render_document(document, _STYLES["style.css"], links)
    frame = _Frame(report.title)
    for done, row in enumerate(rows, 1):
        yield from _ExportedTrial(row, ledger, names, frame).make(behaviour.trials[row.name])
        watch("trials written", done, len(rows))


@dataclass(frozen=True, slots=True)
class _Names:
    """File names of a trial's pages; ids are made safe for file names."""

    stem: str

    @property
    def trial(self) -> str:
        return f"trials/{self.stem}.html"

    def trace(self, number: int) -> str:
        """The page of a part, from 0. Ids contain no tilde, so the names are unique."""
        return f"traces/{self.stem}{f'~{number + 1}' if number else ''}.html"


def _name_pages(rows: Sequence[TrialRow]) -> dict[str, _Names]:
    names: dict[str, _Names] = {}
    for row in rows:
        if row.name in names:
            raise InputError(
                f"{row.name}: this trial is in two of the runs, and a site has one page for each; "
                "write a site for each run"
            )
        names[row.name] = _Names(f"{make_id(row.experiment_id)}/{make_id(row.trial_id)}")
    return names


def _list_trials(rows: Sequence[TrialRow]) -> Table:
    columns = (
        Column("trial"),
        Column("task"),
        Column(""),
        Column("reward"),
        Column("took", is_number=True),
        Column("cost", is_number=True),
        Column("findings"),
        Column("review"),
    )
    cells = tuple(
        (
            Cell(each.trial_id, trials=(each.name,)),
            Cell(each.task_id or UNKNOWN),
            Cell(mark_of(each.reward)),
            Cell(_render_reward(each)),
            Cell(render_seconds(each.seconds)),
            Cell(render_usd(each.cost_usd)),
            Cell(_render_findings(each.findings), tone_of_codes(each.findings)),
            Cell(each.review or "none"),
        )
        for each in rows
    )
    return Table(columns, cells, "Trials")


def _render_reward(row: TrialRow) -> str:
    if row.reward is not None:
        return render_number(row.reward)
    return f"{outcome_of(row)}: {row.reason_code}" if row.reason_code else outcome_of(row)


def _render_findings(codes: Sequence[str]) -> str:
    """Integrity findings with their levels, alarms first."""
    return ", ".join(f"{code} ({level_of(code)})" for code in sort_codes(codes)) or "none"


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """The part of a trace that its page shows."""

    trace: CachedTrace
    index: TraceIndex
    rows: list[Row]


class _ExportedTrial:
    """The pages of one trial."""

    def __init__(
        self, row: TrialRow, ledger: LedgerReader | None, names: dict[str, _Names], frame: _Frame
    ) -> None:
        self._row, self._ledger = row, ledger
        self._names, self._own = names, names[row.name]
        self._frame = frame
        place = row.place or (str(ledger.where) if ledger is not None else "")
        # The relative path of a ledger may be any word, such as "ledger", so it is not replaced.
        places = (os.path.realpath(place), str(Path(place).absolute()), row.place or "")
        # Longest first: a shorter path may be the beginning of a longer one.
        self._places = sorted(filter(None, places), key=len, reverse=True) if place else []

    def make(self, summary: TrialSummary) -> Iterator[tuple[str, str]]:
        """Yield its page and those of its traces, with their names."""
        known = load_trial(self._row, self._ledger)
        excerpts: list[_Excerpt] = []
        if not known.is_withheld and known.damage is None:
            try:
                excerpts = self._read_traces()
            except (InputError, DamageError) as error:
                known = replace(known, problems=(*known.problems, str(error)))
        values = gather(known, summary)
        values |= {
            **self._values(),
            "trial_path": self._find_trial,
            "trace_path": lambda error=None: self._find_step(excerpts, error),
            "review": None,
            "all_files": False,
        }
        yield self._own.trial, render_text("trial.html", **values)
        for number, excerpt in enumerate(excerpts):
            yield self._own.trace(number), self._render_trace(excerpt, excerpts)

    def _values(self) -> dict[str, Any]:
        """Values that differ from the same page of the viewer."""
        return {
            "site": self._frame,
            "style": lambda name: Markup("<style>{}</style>").format(Markup(_STYLES[name])),  # noqa: S704
            "experiment_path": lambda _name: None,
            "entry_path": lambda _seq: None,
            "file_path": lambda _path: None,
            "shorten": self._shorten,
        }

    def _shorten(self, value: object, longest: int = 2000) -> str:
        """Format a value as visible text, without paths of this machine."""
        text = str(value)
        for place in self._places:
            text = text.replace(place, self._row.trial_id)
        return shorten(text, longest)

    def _find_trial(self, experiment: str, trial: str) -> str | None:
        names = self._names.get(f"{experiment}/{trial}")
        return None if names is None else f"{_UP}{names.trial}"

    def _find_step(self, excerpts: Sequence[_Excerpt], error: ToolError | None) -> str | None:
        """The page of a trace, or of an error in it; None if no page shows it."""
        if error is None:
            return f"{_UP}{self._own.trace(0)}" if excerpts else None
        for number, excerpt in enumerate(excerpts):
            is_shown = any(row.step == error.step for row in excerpt.rows)
            if excerpt.trace.part == error.part and is_shown:
                return f"{_UP}{self._own.trace(number)}#step-{error.step}"
        return None

    def _read_traces(self) -> list[_Excerpt]:
        found = []
        for trace in open_traces(load_place(self._row, self._ledger)):
            showing = Showing(base="", has_file=lambda _name: False, start=trace.start)
            index = build_index(trace.lines)
            labels = label_turns(trace.lines)
            rows = read_rows(
                trace.lines, index, range(_count_shown(index)), showing, labels, MOST_CHARACTERS
            )
            found.append(_Excerpt(trace, index, rows))
        return found

    def _render_trace(self, excerpt: _Excerpt, excerpts: Sequence[_Excerpt]) -> str:
        trace, index, rows = excerpt.trace, excerpt.index, excerpt.rows
        show = ["proctor", "show", self._row.name]
        show += ["--part", trace.part] if trace.part else []
        left_out = len(index) - len(rows)
        values = {
            **self._values(),
            "title": f"Trace of {self._row.name}",
            "trial": self._row.trial_id,
            "base": f"{_UP}{self._own.trial}",
            "trace": trace,
            "index": index,
            "count_of": count_of,
            "rows": rows,
            "begin": 0,
            "total": len(index),
            "plain": True,
            "part_links": [
                (each.trace.part, f"{_UP}{self._own.trace(number)}")
                for number, each in enumerate(excerpts)
            ],
            "show": shlex.join(show),
            "left_out": left_out,
            "rest": index.steps[len(rows)] if left_out else None,
        }
        return render_text("trace.html", **values)


def _count_shown(index: TraceIndex) -> int:
    """Number of entries on a page: those of the first steps."""
    steps = 0
    for number in range(min(len(index), MOST_ENTRIES)):
        # Step 0 is what comes before the first step.
        steps += index.is_first(number) and index.steps[number] > 0
        if steps > MOST_STEPS:
            return number
    return min(len(index), MOST_ENTRIES)


# Writing the directory of a site


class _Marker(msgspec.Struct, frozen=True):
    """Marks a directory as a site."""

    format: str
    files: list[str]
    """All other files of the site, sorted."""


def write_site(
    place: Path, pages: Iterator[tuple[str, str]], read: Sequence[str] = ()
) -> list[str]:
    """Write pages, each a relative name and its text, into a directory; return their names, sorted.

    Replaces an earlier site, and nothing else.

    Raises:
        InputError: the directory is not a site, overlaps the input, or cannot be written.
    """
    target = Path(os.path.realpath(place))
    for each in read:
        if target.is_relative_to(os.path.realpath(each)):
            raise InputError(f"{place}: inside {each}; proctor writes nothing into what it reads")
    _check_place(target, place)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", suffix=".partial", dir=target.parent
        ) as beside:
            made = Path(beside) / "site"
            names = sorted(_write_pages(made, pages))
            marker = msgspec.json.format(msgspec.json.encode(_Marker(_FORMAT, names)))
            write_small(str(made / _MARKER), marker + b"\n")
            # Checked again right before: writing the pages may have taken minutes.
            _check_place(target, place)
            if target.exists():
                target.rename(Path(beside) / "before")
            made.rename(target)
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {reason_of(error)}") from error
    return names


def _write_pages(made: Path, pages: Iterator[tuple[str, str]]) -> Iterator[str]:
    made.mkdir(mode=0o755)
    for name, text in pages:
        with create_below(made, name) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
        yield name


def _check_place(target: Path, place: Path) -> None:
    """Check that only files of an earlier site would be replaced."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise InputError(f"{place}: a file is there; expected a new directory")
    strange = next(_find_strange(target), None)
    if strange is not None:
        raise InputError(
            f"{place}: not empty, and {strange!r} in it is not a site's; expected a new "
            "directory, or a site that proctor wrote"
        )


def _find_strange(target: Path) -> Iterator[str]:
    """Files that do not belong to a site; for other directories, all names in it."""
    own = {_MARKER, *_list_own(target)}
    if len(own) == 1:
        yield from sorted(each.name for each in target.iterdir())
        return
    for folder, _, names in os.walk(target):
        for name in sorted(names):
            file = Path(folder, name).relative_to(target).as_posix()
            if file not in own:
                yield file


def _list_own(target: Path) -> list[str]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        marker = msgspec.json.decode((target / _MARKER).read_bytes(), type=_Marker)
        if marker.format == _FORMAT:
            return marker.files
    return []
