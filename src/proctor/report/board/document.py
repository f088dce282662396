"""A board as JSON: every cell with its trials, each with its digest."""

from collections.abc import Mapping
from typing import Any

import msgspec

from proctor.ledger.counting import NOT_COUNTED
from proctor.ledger.row import TrialRow
from proctor.report.board.model import Board, BoardRow, BoardSection, describe_run, describe_tasks
from proctor.report.board.numbers import describe_numbers
from proctor.report.board.trials import BoardTrials

FORMAT = "proctor-board-1"

type Document = dict[str, Any]


def describe_board(board: Board) -> Document:
    """The whole board; its ledger must be open."""
    return {
        "format": FORMAT,
        "dataset": board.dataset,
        "ledger": board.origin,
        "at": board.size,
        "policy": board.policy,
        "trials": board.trials.listed,
        "planned": [msgspec.to_builtins(each) for each in board.planned],
        "sections": [_describe_section(section, board.trials) for section in board.sections],
        "withheld": {
            "trials": [msgspec.to_builtins(gone) for gone in board.trials.withheld],
            "after_this_position": sum(
                gone.said_at is not None and gone.said_at >= board.size
                for gone in board.trials.withheld
            ),
            "of_other_experiments": board.trials.withheld_elsewhere,
        },
    }


def _describe_section(section: BoardSection, trials: BoardTrials) -> Document:
    return {
        "section": section.number,
        "described": f"{describe_run(section.conditions)}; {describe_tasks(section.tasks)}",
        "apart": list(section.apart),
        "conditions": msgspec.to_builtins(section.conditions),
        "tasks": [
            {"task": task, **msgspec.to_builtins(each)} for task, each in section.tasks.items()
        ],
        "rows": [_describe_row(row, trials) for row in section.rows],
    }


def _describe_row(row: BoardRow, trials: BoardTrials) -> Document:
    return {**describe_cells(row), "trials": describe_trials(row, trials)}


def describe_cells(row: BoardRow) -> Document:
    """A row without its trials."""
    return {
        "row": row.number,
        "agent": row.agent,
        "model": row.model,
        "configuration": row.configuration,
        "revision": row.revision,
        "source": row.source or "proctor",
        "records": "partial" if row.is_diagnostic else "complete",
        "leaderboard_grade": not row.numbers.below_grade,
        "below_grade": row.numbers.below_grade,
        "policy": _describe_mark(row),
        "experiments": list(row.experiments),
        **describe_numbers(row.numbers),
    }


def _describe_mark(row: BoardRow) -> Document | None:
    mark = row.mark
    if mark is None:
        return None
    return {"policy": mark.policy, "passed": mark.has_passed, "reasons": dict(mark.reasons)}


def describe_trials(row: BoardRow, trials: BoardTrials) -> list[Document]:
    """The trials of a row with any status, in the order they were sealed."""
    rows = row.load_trials()
    replaced: dict[str, list[str]] = {}
    for trial in rows if trials.supersessions else ():
        found = trials.supersessions.get(trial.record)
        if found is not None and found.refused is None:
            replaced.setdefault(found.by_record, []).append(trial.name)
    codes = row.mark.trials if row.mark is not None else {}
    return [_describe_trial(each, trials, replaced, codes) for each in rows]


def _describe_trial(
    trial: TrialRow,
    trials: BoardTrials,
    replaced: Mapping[str, list[str]],
    codes: Mapping[str, tuple[str, ...]],
) -> Document:
    record = trial.record
    document: Document = {
        "trial": trial.name,
        "record": record,
        "seq": trial.seq,
        "task": trial.task_id,
        "status": status_of(trial),
        "reward": trial.reward,
        "reason": trial.reason_code,
        "exception": trial.exception,
        "cost_usd": trial.cost_usd,
        "advisor_calls": trial.advisor_calls,
        "findings": list(trial.findings),
        "review": trial.review,
    }
    if record in trials.supersessions:
        document["superseded_by"] = msgspec.to_builtins(trials.supersessions[record])
    if record in replaced:
        document["stands_in_for"] = replaced[record]
    if record in trials.remarks:
        document["marked_again"] = msgspec.to_builtins(trials.remarks[record])
    if record in codes:
        document["policy"] = list(codes[record])
    return document


def status_of(trial: TrialRow) -> str:
    """The status of a trial in a row: counted, superseded or begun_again."""
    return trial.status.replace(" ", "_") if trial.status in NOT_COUNTED else "counted"
