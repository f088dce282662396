"""Boards: the list of datasets, one board at a position, and the trials of one of its rows."""

import threading
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.errors import InputError, NotThereError
from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.report.board.document import describe_trials
from proctor.report.board.making import list_datasets, make_board
from proctor.report.board.model import Board
from proctor.report.board.text import (
    COLUMNS,
    render_heading,
    render_notes,
    render_parts,
    render_passed,
    render_remarks,
    render_score,
    render_source,
    render_title,
    split_rows,
)
from proctor.web.bars import draw_bar, find_scale
from proctor.web.data_source import DataSource
from proctor.web.format import board_path
from proctor.web.listing import make_pages, read_page
from proctor.web.pages import ENVIRONMENT, render_page

_ON_A_PAGE = 200
# A board of a large ledger needs much memory, so only one is computed at a time; waiting requests
# then find it in the cache.
_ONE_AT_A_TIME = threading.Lock()
_WORDS = {
    "heading": render_heading,
    "parts": render_parts,
    "passed": render_passed,
    "remarks": render_remarks,
    "score": render_score,
    "source": render_source,
    "split": split_rows,
}


def _list_boards(request: Request) -> Response:
    source: DataSource = request.app.state.source
    with source.opened() as ledger:
        found = list_datasets(_need(ledger))
    return render_page("boards.html", title="Boards", datasets=found)


def _show_board(request: Request) -> Response:
    source: DataSource = request.app.state.source
    dataset, at = request.path_params["dataset"], _read_at(request)
    number, page = request.query_params.get("row", ""), read_page(request.query_params)
    with source.opened() as opened, _ONE_AT_A_TIME:
        ledger = _need(opened)
        with snapshot(ledger) as size:
            key = ("board", dataset, at or size, size, number, page)
        piece = source.kept.find(key)
        if piece is None:
            if dataset not in {each.dataset for each in list_datasets(ledger)}:
                raise NotThereError(f"there is no dataset {dataset[:80]!r} in this ledger")
            board = make_board(ledger, dataset, at=at)
            piece = _render_trials(board, number, page) if number else _render_board(board)
            source.kept.keep(key, piece)
    title = f"Row {number} of {dataset}" if number else f"Board of {dataset}"
    return render_page("board.html", title=title, piece=piece)


def _need(ledger: LedgerReader | None) -> LedgerReader:
    if ledger is None:
        raise NotThereError("boards are made from a ledger; this viewer shows jobs")
    return ledger


def _read_at(request: Request) -> int | None:
    text = request.query_params.get("at", "")
    if text and not (text.isascii() and text.isdecimal()):
        raise InputError(f"at is {text[:40]!r}; expected a log size, a whole number")
    return int(text[:18]) if text else None


def _render_board(board: Board) -> Markup:
    return _render(
        "board_shown.html",
        board=board,
        columns=[column for column in COLUMNS if column.on_page],
        summary=render_title(board),
        scale=find_scale([row.numbers for row in board.rows]),
        bar=draw_bar,
        notes=list(render_notes(board)),
        words=_WORDS,
    )


def _render_trials(board: Board, number: str, page: int) -> Markup:
    row = next((each for each in board.rows if each.number == number), None)
    if row is None:
        raise NotThereError(f"there is no row {number[:40]!r} on this board")
    trials = describe_trials(row, board.trials)
    last = -(-len(trials) // _ON_A_PAGE)
    pages = make_pages(
        board_path(board.dataset),
        {"at": str(board.size), "row": number},
        page,
        last,
    )
    first = (pages.number - 1) * _ON_A_PAGE
    return _render(
        "board_row.html",
        board=board,
        row=row,
        trials=[_add_names(trial) for trial in trials[first : first + _ON_A_PAGE]],
        total=len(trials),
        pages=pages,
        words=_WORDS,
    )


def _add_names(trial: dict[str, Any]) -> dict[str, Any]:
    experiment, _, name = trial["trial"].partition("/")
    return {**trial, "experiment": experiment, "name": name}


def _render(template: str, **values: Any) -> Markup:
    # The template engine has escaped every value in it.
    return Markup(ENVIRONMENT.get_template(template).render(**values))  # noqa: S704


routes: list[BaseRoute] = [
    Route("/boards", _list_boards, name="boards"),
    Route("/boards/{dataset:path}", _show_board, name="board"),
]
