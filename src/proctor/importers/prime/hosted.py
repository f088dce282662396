"""An evaluation and its samples, asked from Prime's interface."""

import re
from dataclasses import dataclass
from typing import Final

from proctor.errors import PrimeError
from proctor.importers.prime.client import Client
from proctor.importers.prime.evaluation import Evaluation, parse_evaluation
from proctor.importers.prime.listing import Listing, Page, parse_page
from proctor.sentence import shown

PAGE_SIZE: Final = 100
LARGEST_PAGE: Final = 1000
"""Samples that Prime gives at once."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def ask_evaluation(client: Client, evaluation_id: str) -> Evaluation:
    """The evaluation of an id.

    Raises:
        PrimeError: there is none, or Prime does not answer.
    """
    if not _ID.fullmatch(evaluation_id):
        raise PrimeError(
            f"EVAL_ID is {shown(evaluation_id)}; expected the id of an evaluation, such as "
            "`prime eval list` shows: letters, digits, . _ -"
        )
    path = f"/evaluations/{evaluation_id}"
    found = client.find(path)
    if found is None:
        raise PrimeError(
            f"{client.access.url}{path}: there is no evaluation {evaluation_id!r}, or none "
            f"that the key of {client.access.key_from} may read; see `prime eval list`"
        )
    return parse_evaluation(found, client.access.url + path, evaluation_id)


def list_samples(
    client: Client, asked: str, evaluation: Evaluation, page_size: int = PAGE_SIZE
) -> Listing:
    """The samples of an evaluation that was asked for by that id; pages are asked for in turn."""
    pages = _Pages(client, f"/evaluations/{asked}/samples", page_size)
    return Listing(pages.find, evaluation.n_samples)


@dataclass(frozen=True, slots=True)
class _Pages:
    client: Client
    path: str
    size: int

    def find(self, number: int) -> Page | None:
        found = self.client.find(self.path, {"page": number, "limit": self.size})
        where = f"{self.client.access.url}{self.path}: page {number}"
        if found is None and number == 1:
            raise PrimeError(f"{where}: there is none")
        # Some answer a page after the last one with 404, some with an empty one.
        return None if found is None else parse_page(found, where, self.size)
