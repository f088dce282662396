"""Draws a running job on a terminal: a bar, the mean with its denominators, a line for each trial.

A thread of rich redraws it four times a second from the last known state, so that the job never
waits. It never takes more rows than the terminal has.
"""

import contextlib
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proctor.cli.running.watching import (
    Progress,
    render_basis,
    render_ended,
    render_left,
    render_means,
    render_running,
    render_waiting,
)
from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import TrialResult
from proctor.job.watch import Watch
from proctor.sentence import printable, render_duration

_PER_SECOND = 4
# Rows of the terminal that are left free.
_MARGIN = 2
# Groups whose mean is shown.
_MOST_MEANS = 4
_NARROWEST_BAR = 10


class Drawing(Watch):
    """The drawing, and the state of the job."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = printable(title)
        self._console = console
        self._progress = Progress()
        self._began = self._progress.clock()
        self.live = Live(
            self,
            console=console,
            refresh_per_second=_PER_SECOND,
            transient=True,
            redirect_stderr=True,
        )

    def job_planned(self, n_total: int, n_kept: int) -> None:
        """See Watch."""
        self._progress.n_total, self._progress.n_kept = n_total, n_kept
        # Started only now: the user may have been asked something before. The terminal may be gone
        # since.
        with contextlib.suppress(OSError):
            self.live.start()

    def trial_started(self, trial: str, task: str, attempt: int) -> None:
        """See Watch."""
        self._progress.start(trial, attempt)

    def phase_began(self, trial: str, phase: str) -> None:
        """See Watch."""
        self._progress.enter(trial, phase)

    def models_used(self, trial: str, n_requests: int, cost_usd: float | None) -> None:
        """See Watch."""
        self._progress.spend(trial, n_requests, cost_usd)

    def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
        """See Watch."""
        self._progress.end(trial, stats)
        if result.exception_info is not None:
            self._print(render_ended(self._progress, trial, result), "yellow")

    def trial_retried(
        self, trial: str, attempt: int, result: TrialResult, delay_sec: float
    ) -> None:
        """See Watch."""
        self._progress.retry(trial)
        self._print(render_waiting(trial, attempt, result, delay_sec), "yellow")

    def said(self, sentence: str) -> None:
        """See Watch."""
        self._print(printable(sentence), "")

    def _print(self, line: str, style: str) -> None:
        with contextlib.suppress(OSError):
            self._console.print(Text(line, style), soft_wrap=True, highlight=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the present state."""
        height = max(console.size.height - _MARGIN, 3)
        means = render_means(self._progress.stats)
        shown = means[: min(_MOST_MEANS, max(height - 4, 0))]
        parts: list[Table | Text] = [self._bar(options.max_width)]
        parts.extend(_line(mean, "bold") for mean in shown)
        if self._progress.stats.n_completed_trials:
            parts.append(_line(render_basis(self._progress), "dim"))
        # Copied in one step, because the drawing runs in another thread.
        running = list(self._progress.running.values())
        now, rows = self._progress.clock(), height - len(parts)
        parts.append(_table(render_running(running, now, rows)))
        yield Group(*parts)

    def _bar(self, width: int) -> Table:
        progress = self._progress
        counts = f"{progress.n_done}/{progress.n_total}"
        if progress.n_kept:
            counts += f" ({progress.n_kept} kept)"
        counts += f"  {render_duration(progress.clock() - self._began)}"
        counts += f", {left}" if (left := render_left(progress)) else ""
        title = self._title[: max(width - len(counts) - _NARROWEST_BAR - 4, 8)]
        bar = ProgressBar(
            total=max(progress.n_total, 1),
            completed=progress.n_done,
            width=max(width - len(counts) - len(title) - 4, _NARROWEST_BAR),
        )
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_row(_line(title, "bold"), bar, _line(counts, ""))
        return table


def _table(rows: list[tuple[str, str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis", style="cyan")
    table.add_column(no_wrap=True, justify="right")
    for name, phase, seconds in rows:
        table.add_row(Text(f"  {name}"), Text(phase), Text(seconds))
    return table


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


@contextlib.contextmanager
def drawn(title: str) -> Iterator[Drawing]:
    """Show a drawing on stderr inside the `with` block, and erase it afterwards."""
    console = Console(stderr=True, highlight=False)
    drawing = Drawing(title, console)
    try:
        yield drawing
    finally:
        with contextlib.suppress(OSError):
            drawing.live.stop()
