"""An evaluation and its samples from files, as `prime eval get` and `samples` print them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from proctor.errors import PrimeError
from proctor.files import read_small
from proctor.importers.prime.evaluation import Evaluation, parse_evaluation
from proctor.importers.prime.listing import Listing, Page, parse_page
from proctor.importers.prime.reading import parse_json
from proctor.sentence import reason_of

_LARGEST: Final = 1 << 30
_SAVE: Final = "as `prime eval samples ID -n 1000 -o json` prints it"


@dataclass(frozen=True, slots=True)
class Saved:
    """What files hold of an evaluation."""

    evaluation: Evaluation
    samples: Listing
    notes: tuple[str, ...]
    """What a reader of the files should know."""


def load_saved(evaluation: Path, samples: Sequence[Path], asked: str | None = None) -> Saved:
    """The evaluation of one file with the samples of others, page by page.

    Raises:
        PrimeError: a file cannot be read or used, or is of another evaluation than `asked`.
    """
    found = parse_evaluation(_load(evaluation), str(evaluation), asked)
    if asked is not None and found.id != asked:
        raise PrimeError(f"{evaluation}: evaluation {found.id!r}; EVAL_ID is {asked!r}")
    notes: list[str] = []
    pages = [_load_page(path, notes) for path in samples]
    if len(pages) == 1 and pages[0].has_more and pages[0].total is None:
        notes.append(f"{samples[0]}: has_more is true: there are samples that are not in it")
    whole = Page(
        samples=[each for page in pages for each in page.samples],
        total=max((page.total for page in pages if page.total is not None), default=None),
        limit=_LARGEST,
    )
    listing = Listing({1: whole}.get, found.n_samples, readings=1)
    return Saved(found, listing, tuple(notes))


def _load_page(path: Path, notes: list[str]) -> Page:
    value = _load(path)
    if isinstance(value, list):
        notes.append(f"{path}: a bare list; taken as all samples there are")
        value = {"samples": value}
    if not isinstance(value, dict) or not isinstance(value.get("samples"), list):
        raise PrimeError(f"{path}: has no list `samples`; expected a page of samples, {_SAVE}")
    return parse_page(value, str(path), _LARGEST)


def _load(path: Path) -> Any:
    try:
        data = read_small(os.fspath(path), _LARGEST)
    except (OSError, ValueError) as error:
        raise PrimeError(f"{path}: cannot be read: {reason_of(error)}") from error
    if not data:
        raise PrimeError(f"{path}: is empty, or a pipe; expected a file with JSON")
    return parse_json(data, str(path))
