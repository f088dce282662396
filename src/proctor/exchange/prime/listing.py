"""An evaluation and all its samples, page by page, each sample once; also from saved files.

Pages have several formats: with `total_pages`, with `total` and `has_more`, or with neither. There
is another page as long as any of these says so; without them, as long as pages are full; and never
after an empty page.

A list that changes while it is read shifts: a sample appears twice, or moves from a page not read
yet to one already read. So the samples are counted and compared with Prime's total, and the list is
read again if they differ, until a reading is complete or two readings agree.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.digest import sha256_digest
from proctor.errors import PrimeError
from proctor.exchange.foreign_values import find_text
from proctor.exchange.prime.sample import parse_json
from proctor.files import read_small
from proctor.record.fields import check_json
from proctor.sentence import count_of, reason_of, shown
from proctor.traces.entry import Object

_SAVE = "as `prime eval get ID -o json` prints it"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation."""

    id: str
    model: str
    configuration: Object
    """Its name, address and settings, as stored in the record."""
    created_at: object = None
    """When it was created, in Prime's format."""
    n_samples: int | None = None
    """Number of samples, according to Prime."""
    status: str | None = None


def parse_evaluation(value: object, where: str, asked: str | None = None) -> Evaluation:
    """Parse an evaluation from a response or a file; `asked` is the id that was requested.

    Raises:
        PrimeError: it is not an evaluation, or not the requested one.
    """
    if not isinstance(value, dict):
        raise PrimeError(f"{where}: {shown(value)}; expected the object of an evaluation, {_SAVE}")
    own = _find_id(value)
    if own is None and asked is None:
        hint = "; it has samples: is it for --samples-json?" if "samples" in value else ""
        raise PrimeError(
            f"{where}: has no evaluation_id; expected the object of an evaluation, {_SAVE}, or "
            f"the id as EVAL_ID{hint}"
        )
    name = own or asked or ""
    configuration = _configure(value, name)
    try:
        check_json(configuration, levels=90)
    except ValueError as error:
        raise PrimeError(f"{where}: {error}, which a record cannot store") from error
    return Evaluation(
        id=name,
        model=_find_model(value),
        configuration=configuration,
        created_at=_first(value, "created_at", "createdAt"),
        n_samples=find_count(_first(value, "total_samples", "totalSamples")),
        status=find_text(value.get("status")),
    )


def _find_id(value: Object) -> str | None:
    found = _first(value, "evaluation_id", "evaluationId", "id")
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return find_text(found)


def _find_model(value: Object) -> str:
    metadata = value.get("metadata")
    model = metadata.get("model") if isinstance(metadata, dict) else None
    names = (value.get("model_name"), value.get("modelName"), value.get("inference_model"), model)
    return find_text(*names) or "unknown"


def _configure(value: Object, name: str) -> Object:
    return {
        "source": "prime-eval-samples",
        "evaluation_id": name,
        "evaluation_name": value.get("name"),
        "viewer_url": _first(value, "viewer_url", "viewerUrl"),
        "eval_config": _first(value, "eval_config", "evalConfig"),
    }


def _first(value: Object, *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def find_count(value: object) -> int | None:
    """Return a whole number of 0 or more; None for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and isinstance(value, int) and value >= 0 else None


MOST_READINGS: Final = 3
# Pages in a row without a new sample, after which a list is considered endless.
_MOST_STALE: Final = 3
_MOST_PAGES: Final = 100_000


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page, with what it says about further pages."""

    samples: list[Any]
    total: int | None = None
    """Samples on all pages."""
    total_pages: int | None = None
    has_more: bool | None = None
    limit: int
    """Samples on a full page."""

    def says_more(self, number: int, n_received: int) -> bool:
        """Whether there is a page after this one, the `number`th."""
        said = [
            *([] if self.has_more is None else [self.has_more]),
            *([] if self.total_pages is None else [number < self.total_pages]),
            *([] if self.total is None else [n_received < self.total]),
        ]
        return any(said) if said else len(self.samples) >= self.limit


def parse_page(value: object, where: str, limit: int) -> Page:
    """Parse a page from a response or a file; `limit` is the requested page size.

    Raises:
        PrimeError: it has no list of samples.
    """
    samples = value.get("samples") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(samples, list):
        raise PrimeError(f"{where}: {shown(value)}; expected an object with a list `samples`")
    has_more = value.get("has_more", value.get("hasMore"))
    # The server may cap the page size, and reports the cap.
    cap = find_count(value.get("limit"))
    return Page(
        samples=samples,
        total=find_count(value.get("total")),
        total_pages=find_count(value.get("total_pages", value.get("totalPages"))),
        has_more=has_more if isinstance(has_more, bool) else None,
        limit=min(limit, cap) if cap else limit,
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """One sample from the list."""

    name: str
    """Its id, else `sample-N` with its position in the list."""
    value: Any


@dataclass(slots=True)
class Reading:
    """One pass through all pages."""

    names: set[object] = field(default_factory=set)
    repeated: int = 0
    """Samples that appeared again."""
    totals: set[int] = field(default_factory=set)
    """The totals that pages reported."""
    received: int = 0
    is_cut: bool = False
    """Whether it was stopped because pages only repeated samples."""

    def is_whole(self, total: int | None) -> bool:
        """Whether the list did not change, and everything in it was received."""
        is_still = not self.repeated and len(self.totals) <= 1 and not self.is_cut
        return is_still and total in (None, len(self.names))


@dataclass(slots=True)
class Listing:
    """The samples as they arrive, and afterwards whether all of them did."""

    ask: Callable[[int], Page | None]
    """Returns the page with a number, from 1; None if it does not exist."""
    total: int | None = None
    """Expected number of samples, as last reported."""
    readings: int = MOST_READINGS
    """How often the list may be read; once is enough for files."""
    seen: dict[object, set[bytes]] = field(default_factory=dict)
    """Samples received, by name: a short digest of each content."""
    last: Reading = field(default_factory=Reading)
    n_readings: int = 0
    is_agreed: bool = False
    """Whether the last two readings were equal."""
    failure: PrimeError | None = None
    """The error that ended the reading early; earlier samples are valid."""

    def __iter__(self) -> Iterator[Listed]:
        """Yield every sample once, and again if it appears with different content."""
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
        """How many samples Prime reported but did not return."""
        return max(0, (self.total or 0) - len(self.seen))

    @property
    def is_settled(self) -> bool:
        """Whether all samples of an unchanging list were received, even if some are in it twice."""
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
        raise PrimeError(f"the list does not end: {count_of(_MOST_PAGES, 'page')} were read")

    def _take(self, page: Page, reading: Reading) -> Iterator[Listed]:
        alike: Counter[bytes] = Counter()
        for value in page.samples:
            reading.received += 1
            content = _digest(value)
            given = _find_sample_id(value)
            alike[content] += 1
            # Without an id, equal content on another page is the same sample.
            key: object = (content, alike[content]) if given is None else given
            if key in reading.names:
                reading.repeated += 1
            reading.names.add(key)
            contents = self.seen.setdefault(key, set())
            if content not in contents:
                contents.add(content)
                yield Listed(given or f"sample-{reading.received}", value)


def _find_sample_id(value: object) -> str | None:
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
        # The sample is refused later, when it is converted; any digest will do until then.
        text = "nested too deeply"
    return sha256_digest(text.encode())[:16]


_LARGEST: Final = 1 << 30
_SAVE_SAMPLES: Final = "as `prime eval samples ID -n 1000 -o json` prints it"


@dataclass(frozen=True, slots=True)
class Saved:
    """An evaluation from saved files."""

    evaluation: Evaluation
    samples: Listing
    notes: tuple[str, ...]
    """Notes about the files."""


def load_saved(evaluation: Path, samples: Sequence[Path], asked: str | None = None) -> Saved:
    """Load the evaluation from one file and its samples from others, page by page.

    Raises:
        PrimeError: a file cannot be read or used, or belongs to another evaluation than `asked`.
    """
    found = parse_evaluation(_load(evaluation), str(evaluation), asked)
    if asked is not None and found.id != asked:
        raise PrimeError(f"{evaluation}: evaluation {found.id!r}; EVAL_ID is {asked!r}")
    notes: list[str] = []
    pages = [_load_page(path, notes) for path in samples]
    if len(pages) == 1 and pages[0].has_more and pages[0].total is None:
        notes.append(f"{samples[0]}: has_more is true: it does not contain all samples")
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
        notes.append(f"{path}: a bare list; treated as all samples")
        value = {"samples": value}
    if not isinstance(value, dict) or not isinstance(value.get("samples"), list):
        raise PrimeError(
            f"{path}: has no list `samples`; expected a page of samples, {_SAVE_SAMPLES}"
        )
    return parse_page(value, str(path), _LARGEST)


def _load(path: Path) -> Any:
    try:
        data = read_small(os.fspath(path), _LARGEST)
    except (OSError, ValueError) as error:
        raise PrimeError(f"{path}: cannot be read: {reason_of(error)}") from error
    if not data:
        raise PrimeError(f"{path}: is empty, or a pipe; expected a file with JSON")
    return parse_json(data, str(path))
