"""The pages of a site, one after the other: the report, then every trial."""

from collections.abc import Iterator, Sequence

from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.record.ids import make_id
from proctor.report.behaviour import Behaviour, Watch, trace_attempt
from proctor.report.document.document import tell_report
from proctor.report.document.facts import ReportFacts
from proctor.report.levels import tone_of_codes
from proctor.report.marks import mark_of
from proctor.report.page.blocks import Block, Cell, Column, Document, Heading, Table
from proctor.report.page.figures import UNKNOWN, render_money, render_seconds
from proctor.report.page.html import Frame, Links, render_page
from proctor.report.runs import Run
from proctor.report.site.trial import render_reward, tell_trial
from proctor.trial.finding import level_of, sort_codes


def make_pages(
    facts: ReportFacts,
    runs: Sequence[Run],
    behaviour: Behaviour,
    ledger: LedgerReader | None,
    style: str,
    watch: Watch,
) -> Iterator[tuple[str, str]]:
    """Every page as its relative name and its text.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    attempts = [each for run in runs for each in run.attempts]
    names = _name_pages(attempts)
    report = tell_report(facts)
    blocks: tuple[Block, ...] = (*report.blocks, Heading("Trials"), _tell_trials(attempts))
    links = Links(trial=names.get)
    yield "index.html", render_page(Document(report.title, blocks), Frame(style), links)
    frame = Frame(style, up=("../../index.html", report.title))
    for done, attempt in enumerate(attempts, 1):
        trial = trace_attempt(attempt, ledger)
        document = tell_trial(attempt, trial, behaviour.trials[attempt.name])
        yield names[attempt.name], render_page(document, frame)
        watch("pages written", done, len(attempts))


def _name_pages(attempts: Sequence[TrialRow]) -> dict[str, str]:
    """Where the page of each trial is; ids are made safe to be names of files."""
    return {
        each.name: f"trials/{make_id(each.experiment_id)}/{make_id(each.trial_id)}.html"
        for each in attempts
    }


def _tell_findings(codes: Sequence[str]) -> str:
    """Integrity findings with their levels, alarms first."""
    return ", ".join(f"{code} ({level_of(code)})" for code in sort_codes(codes)) or "none"


def _tell_trials(attempts: Sequence[TrialRow]) -> Table:
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
    rows = tuple(
        (
            Cell(each.trial_id, trials=(each.name,)),
            Cell(each.task_id or UNKNOWN),
            Cell(mark_of(each.reward)),
            Cell(render_reward(each)),
            Cell(render_seconds(each.seconds)),
            Cell(render_money(each.cost_usd)),
            Cell(_tell_findings(each.findings), tone_of_codes(each.findings)),
            Cell(each.review or "none"),
        )
        for each in attempts
    )
    return Table(columns, rows, "Trials")
