"""Runs in Python, for notebooks and scripts: `proctor.load`, `proctor.compare`.

    import proctor

    runs = proctor.load("ledger")             # or a job, or a directory of jobs
    runs["nightly"].rows                      # a dict for each trial that counts
    runs["nightly"].to_pandas()               # or to_polars(), where installed
    runs["nightly"].trace("greet__aYMmBjo")   # what the agent did
    proctor.compare(runs["nightly"], runs["candidate"]).paired

Numbers and rows are those of the commands, from the same functions. Nothing is written.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from proctor.errors import InputError
from proctor.exchange.harbor_job import find_jobs
from proctor.ledger.log import is_ledger
from proctor.ledger.place import open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.plugin import load_module
from proctor.report.behaviour import trace_trial
from proctor.report.comparison.compared import Comparison, Terms, compare_sides
from proctor.report.comparison.sides import make_side
from proctor.report.groups import group_by_task, group_trials, name_groups
from proctor.report.runs import Run, load_job_run, load_sealed_run
from proctor.report.scores import score_tasks
from proctor.traces.trace import load_trace_file
from proctor.traces.traced_trial import FoundTrace, opened_traces

if TYPE_CHECKING:
    import pandas
    import polars

_NESTED = ("run_conditions", "task_conditions")
"""Fields that would not fit into a column."""

__all__ = ["Experiment", "Experiments", "compare", "load"]


@dataclass(frozen=True, slots=True)
class Experiment:
    """The trials of one experiment or job."""

    run: Run
    """The trials that count, and what was left out."""
    ledger: Path | None = None
    """The ledger that it is in."""

    @property
    def name(self) -> str:
        """Name of the experiment, or of the job's directory."""
        return self.run.name

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dict for each trial that counts: the fields of `proctor.ledger.row.TrialRow`."""
        return [
            {key: getattr(row, key) for key in TrialRow.__struct_fields__ if key not in _NESTED}
            for row in self.run.trials
        ]

    @property
    def scores(self) -> dict[str, dict[str, Any]]:
        """Means, intervals, pass@k and cost of each agent and model, as in `proctor report`."""
        groups = group_trials(self.run.trials)
        names = name_groups(groups)
        return {
            names[group]: msgspec.to_builtins(score_tasks(group_by_task(rows)))
            for group, rows in groups.items()
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a pandas frame."""
        return load_module("pandas").DataFrame(self.rows)

    def to_polars(self) -> "polars.DataFrame":
        """The rows as a polars frame."""
        # Columns such as a reward or an error are often empty in the first hundred rows.
        frame: polars.DataFrame = load_module("polars").DataFrame(
            self.rows, infer_schema_length=None
        )
        return frame

    def trace(self, trial: str) -> list[dict[str, Any]]:
        """The trace of a trial as dicts, one for each entry; empty if the trial left none.

        `trial` is the trial's id, or any beginning of it that only one trial has. The entries of a
        trial with several steps name their step under `trial_step`.
        """
        row = self._find(trial)
        with (
            _opened(self.ledger) as ledger,
            opened_traces(trace_trial(row, ledger), with_output=True) as traces,
        ):
            return [
                entry | ({"trial_step": found.part} if found.part else {})
                for found in traces
                for entry in _read_entries(found)
            ]

    def _find(self, trial: str) -> TrialRow:
        fitting = [row for row in self.run.trials if row.trial_id.startswith(trial)]
        exact = [row for row in fitting if row.trial_id == trial]
        if len(found := exact or fitting) == 1:
            return found[0]
        count = "no trial" if not found else f"{len(found)} trials"
        raise InputError(
            f"{self.name}: {count} with an id that begins with {trial!r}; `rows` lists the ids "
            "under trial_id"
        )

    def __repr__(self) -> str:
        return f"<Experiment {self.name}: {len(self.run.trials)} trials>"


class Experiments(Mapping[str, Experiment]):
    """Experiments by name."""

    def __init__(self, found: Mapping[str, Experiment]) -> None:
        self._found = dict(found)

    def __getitem__(self, name: str) -> Experiment:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<Experiments: {', '.join(self) or 'none'}>"


def load(path: str | os.PathLike[str]) -> Experiments:
    """Load a ledger, a harbor or proctor job, or a directory of jobs.

    Raises:
        InputError: it is none of these, or a trial in it cannot be used.
        DamageError: the ledger's log does not match its checkpoint.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place}: there is no such directory; expected a ledger or jobs")
    if is_ledger(place):
        with open_reader(place) as ledger:
            ledger.refresh()
            names = [name for name, _ in ledger.index.experiments()]
            return Experiments(
                {name: Experiment(load_sealed_run(ledger, name), place) for name in names}
            )
    runs = [load_job_run(str(job)) for job in find_jobs(place)]
    return Experiments({run.name: Experiment(run) for run in runs})


def compare(
    a: Experiment,
    b: Experiment,
    *,
    a_agent: str | None = None,
    b_agent: str | None = None,
    common: bool = False,
    allow_unlike: bool = False,
) -> Comparison:
    """Compare the scores of two experiments, task by task, as `proctor compare --no-behaviour`.

    `a_agent` and `b_agent` select an agent and model by part of their name where there are several.
    """
    terms = Terms(common=common, allow_unlike=allow_unlike)
    sides = make_side("A", a.run, a_agent), make_side("B", b.run, b_agent)
    return compare_sides(*sides, terms, None)


def _read_entries(found: FoundTrace) -> list[dict[str, Any]]:
    entries = load_trace_file(found.path, found.kind).all_entries
    return [msgspec.to_builtins(entry) for entry in entries]


@contextlib.contextmanager
def _opened(place: Path | None) -> Iterator[LedgerReader | None]:
    if place is None:
        yield None
        return
    with open_reader(place) as ledger:
        ledger.refresh()
        yield ledger
