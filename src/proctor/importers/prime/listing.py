"""All samples of an evaluation, page after page, each of them once.

Pages come in several models: with `total_pages`, with `total` and `has_more`, or with nothing.
There is more as long as anything says so; without a word, as long as pages are full; and never
after an empty page.

A list that is written to while it is read shifts: a sample comes twice, or slips from a page that
is not read yet onto one that was. So what came is held against what Prime says there is, and the
list is read again where the two differ, until a reading is whole or two of them agree.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from proctor.digest import sha256_digest
from proctor.errors import PrimeError
from proctor.importers.prime.evaluation import find_count
from proctor.sentence import count_of, shown

MOST_READINGS: Final = 3
_MOST_STALE: Final = 3
"""Pages in a row that may hold nothing new before a list is taken for endless."""
_MOST_PAGES: Final = 100_000


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page, and what it says of those to come."""

    samples: list[Any]
    total: int | None = None
    """Samples on all pages."""
    total_pages: int | None = None
    has_more: bool | None = None
    limit: int
    """Samples that a full page has."""

    def says_more(self, number: int, n_received: int) -> bool:
        """Whether there is a page after this one, the `number`th."""
        said = [
            *([] if self.has_more is None else [self.has_more]),
            *([] if self.total_pages is None else [number < self.total_pages]),
            *([] if self.total is None else [n_received < self.total]),
        ]
        return any(said) if said else len(self.samples) >= self.limit


def parse_page(value: object, where: str, limit: int) -> Page:
    """The page that an answer or a file holds; `limit` is how many samples were asked for.

    Raises:
        PrimeError: there are no samples in it, not even an empty list of them.
    """
    samples = value.get("samples") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(samples, list):
        raise PrimeError(f"{where}: {shown(value)}; expected an object with a list `samples`")
    has_more = value.get("has_more", value.get("hasMore"))
    # Who asks for more than one may have gets as many as one may have, and is told so.
    told = find_count(value.get("limit"))
    return Page(
        samples=samples,
        total=find_count(value.get("total")),
        total_pages=find_count(value.get("total_pages", value.get("totalPages"))),
        has_more=has_more if isinstance(has_more, bool) else None,
        limit=min(limit, told) if told else limit,
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """One sample as it came."""

    name: str
    """Its id, else `sample-N` after its place in the list."""
    value: Any


@dataclass(slots=True)
class Reading:
    """One way through all pages."""

    names: set[object] = field(default_factory=set)
    repeated: int = 0
    """Samples that came once more."""
    totals: set[int] = field(default_factory=set)
    """What the pages said there is."""
    received: int = 0
    is_cut: bool = False
    """Whether it was ended because pages only repeated themselves."""

    def is_whole(self, total: int | None) -> bool:
        """Whether the list stood still, and everything in it came."""
        is_still = not self.repeated and len(self.totals) <= 1 and not self.is_cut
        return is_still and total in (None, len(self.names))


@dataclass(slots=True)
class Listing:
    """The samples as they arrive, and afterwards whether all of them did."""

    ask: Callable[[int], Page | None]
    """The page of a number, from 1; None where there is none."""
    total: int | None = None
    """How many samples there should be, by the last word about it."""
    readings: int = MOST_READINGS
    """How often the list may be read; once is enough for what cannot change."""
    seen: dict[object, set[bytes]] = field(default_factory=dict)
    """What came, by name: a short digest of each content."""
    last: Reading = field(default_factory=Reading)
    n_readings: int = 0
    is_agreed: bool = False
    """Whether the last two readings found the same."""
    failure: PrimeError | None = None
    """What ended the reading before its time; what came before it, came."""

    def __iter__(self) -> Iterator[Listed]:
        """Every sample once, and once more where it came with another content.

        Raises:
            PrimeError: the very first page could not be had.
        """
        try:
            while self.n_readings < self.readings:
                before, self.last = self.last, Reading()
                yield from self._read_through(self.last)
                self.n_readings += 1
                self.is_agreed = self.n_readings > 1 and self.last == before
                if self.is_agreed or self.last.is_whole(self.total):
                    return
        except PrimeError as error:
            if not self.seen:
                raise
            self.failure = error

    @property
    def missing(self) -> int:
        """How many samples there are by Prime's word, and did not come."""
        return max(0, (self.total or 0) - len(self.seen))

    @property
    def is_settled(self) -> bool:
        """Whether all came of a list that stands still, be it with samples that are in it twice."""
        if self.failure is not None or self.last.is_cut or self.missing:
            return False
        return self.is_agreed or self.readings == 1 or self.last.is_whole(self.total)

    def _read_through(self, reading: Reading) -> Iterator[Listed]:
        stale = 0
        for number in range(1, _MOST_PAGES + 1):
            page = self.ask(number)
            if page is None:
                return
            if page.total is not None:
                self.total = page.total
                reading.totals.add(page.total)
            before = len(reading.names)
            yield from self._take(page, reading)
            stale = stale + 1 if len(reading.names) == before else 0
            if not page.samples or not page.says_more(number, reading.received):
                return
            if stale >= _MOST_STALE:
                reading.is_cut = True
                return
        raise PrimeError(f"there is no end of pages: {count_of(_MOST_PAGES, 'page')} were read")

    def _take(self, page: Page, reading: Reading) -> Iterator[Listed]:
        alike: Counter[bytes] = Counter()
        for value in page.samples:
            reading.received += 1
            content = _digest(value)
            given = _find_id(value)
            alike[content] += 1
            # Without an id, the same content on another page is the same sample.
            key: object = (content, alike[content]) if given is None else given
            if key in reading.names:
                reading.repeated += 1
            reading.names.add(key)
            contents = self.seen.setdefault(key, set())
            if content not in contents:
                contents.add(content)
                yield Listed(given or f"sample-{reading.received}", value)


def _find_id(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    for key in ("sample_id", "sampleId", "id"):
        given = value.get(key)
        if isinstance(given, int) and not isinstance(given, bool):
            return str(given)
        if isinstance(given, str) and given.strip():
            return given
    return None


def _digest(value: object) -> bytes:
    try:
        text = json.dumps(value, sort_keys=True)
    except RecursionError:
        # It is refused when its turn comes; until then its shape need not be known.
        text = "nested too deeply"
    return sha256_digest(text.encode())[:16]
