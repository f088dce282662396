"""Reviews submitted from the page of a trial: new entries of the ledger, signed by the user.

    POST /trials/{experiment}/{trial}/reviews    verdict, reviewer, note

Append-only: existing entries never change. Invalid reviews are refused before anything is written.
"""

import os
from typing import Final, get_args

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from proctor.errors import BusyError, KeyFileError, LedgerError
from proctor.ledger.entry import Verdict
from proctor.ledger.keys import default_key_path, load_key
from proctor.ledger.place import open_writer
from proctor.ledger.review import LONGEST_NAME, LONGEST_TEXT, append_review, check_words
from proctor.web.shown import trial_path
from proctor.web.subject import Subject, find_row
from proctor.web.writing import read_form, require_token

PATIENCE_SEC: Final = 3.0
"""How long to wait for a running job that has locked the ledger before the review is refused."""
_VERDICTS: Final = get_args(Verdict.__value__)


async def _take_review(request: Request) -> Response:
    require_token(request)
    fields = await read_form(request)
    experiment, trial = request.path_params["experiment"], request.path_params["trial"]
    seq = await run_in_threadpool(_append, request.app.state.subject, (experiment, trial), fields)
    return RedirectResponse(
        f"{trial_path(experiment, trial)}?review={seq}#review-{seq}", status_code=303
    )


def _append(subject: Subject, name: tuple[str, str], fields: dict[str, str]) -> int:
    """Append the review; return the number of its entry."""
    if subject.ledger is None:
        subject.trial_directory(*name)
        raise HTTPException(409, "reviews are stored in a ledger; these are plain job directories")
    verdict, reviewer, note = _read_fields(fields)
    try:
        key = load_key(default_key_path(os.environ))
        with open_writer(subject.ledger, key, patience_sec=PATIENCE_SEC) as ledger:
            row = find_row(ledger, *name)
            seq = append_review(ledger, row, verdict, reviewer=reviewer, note=note)
            ledger.refresh()
            return seq
    except KeyFileError as error:
        raise HTTPException(403, f"nothing was written: {error}") from error
    except BusyError as error:
        raise HTTPException(503, str(error), {"Retry-After": "5"}) from error
    except LedgerError as error:
        is_forbidden = isinstance(error.__cause__, PermissionError)
        code = 403 if is_forbidden else 503
        raise HTTPException(code, f"nothing was written: {error}") from error


def _read_fields(fields: dict[str, str]) -> tuple[str, str, str]:
    """Verdict, reviewer and note, validated."""
    verdict = fields.get("verdict", "")
    if verdict not in _VERDICTS:
        raise HTTPException(
            400, f"the verdict is {verdict[:40]!r}; expected one of {', '.join(_VERDICTS)}"
        )
    reviewer = fields.get("reviewer", "").strip()
    # Forms send line ends as \r\n, whatever was typed.
    note = fields.get("note", "").replace("\r\n", "\n").strip()
    for text, longest, what in (
        (reviewer, LONGEST_NAME, "the reviewer's name"),
        (note, LONGEST_TEXT, "the note"),
    ):
        if len(text) > longest:
            raise HTTPException(
                413, f"{what} has {len(text):,} characters; expected at most {longest:,}"
            )
    try:
        check_words(reviewer, "the reviewer", longest=LONGEST_NAME)
    except LedgerError as error:
        raise HTTPException(400, str(error)) from error
    if not reviewer.isprintable():
        raise HTTPException(400, "the reviewer's name has control characters")
    return verdict, reviewer, note


routes: list[BaseRoute] = [
    Route("/trials/{experiment}/{trial}/reviews", _take_review, methods=["POST"], name="reviews")
]
