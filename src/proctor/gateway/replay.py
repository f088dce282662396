"""Answers the requests of a trial from the recorded exchanges of another, instead of a provider.

A recorded exchange answers a request that is the same but for what differs in every run (see
normalized.py), in whatever order requests come; each answers once. The first request that no
exchange answers is where the conversation differs; what happens then is the user's choice.

Requests are compared without what differs in every run: `normalize` puts ~ in place of dates,
times, durations, ids, ports and temporary names, and a digest is of the JSON, whatever the order of
its keys. A body that is not JSON is compared byte by byte.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import TraceError
from proctor.gateway.exchange import ModelRequest, Wire
from proctor.gateway.options import OnDifference
from proctor.gateway.recording import Call, Place, RecordedCall, read_at, read_calls
from proctor.gateway.wire import read_request
from proctor.sentence import count_of
from proctor.traces.turn import Turn

_STAND_IN: Final = "~"
# What differs in every run. The order matters: a date has the digits of a number. Repetitions that
# a hostile text could make slow are bounded.
_VARYING: Final = re.compile(
    r"""
      \d{4}-\d\d-\d\d(?:[T\s]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|\s?[+-]\d\d:?\d\d)?)?     # a date
    | \b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},?\s{1,3}(?:\d{1,2}\s{1,3})?
      (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\s{1,3}\d{1,4}(?:,\s\d{4})?
      (?:\s{1,3}\d\d:\d\d(?::\d\d)?)?(?:\s[AP]M)?(?:\s[A-Z]{3,4})?(?:\s\d{4})?
    | \b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\s{1,3}\d{1,2}
      (?:\s{1,3}\d\d:\d\d(?::\d\d)?|,?\s{1,3}\d{4})
    | (?<![\d:])\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?![\d:])                                # a time
    | (?<![0-9a-fA-F-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F])  # a UUID
    | (?<![A-Za-z0-9])(?:call|toolu|msg|resp|chatcmpl|fc|rs|req|gen)[_-][A-Za-z0-9_-]{6,}  # an id
    | \b0x[0-9a-fA-F]{6,}\b                                                            # an address
    | (?<=/tmp/)tmp[\w.-]+ | \btmp\.\w{6,}                                            # a temporary
    | (?<=/tmp/)[\w.-]{1,64}?[-_.](?=[a-zA-Z_]{0,11}\d)\w{6,12}\b                             # name
    | (?<=127\.0\.0\.1:)\d+ | (?<=localhost:)\d+                                           # a port
    | (?<!\d)1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?(?!\d)                                       # a moment
    | (?<![\d.])\d{1,18}(?:\.\d{1,18})?\s?(?:ns|us|µs|ms|s|secs?|seconds?)\b           # a duration
    | (?<=\bpid[ =:])\d+ | (?<=\bPID[ =:])\d+
    | (?<=\bcommit[ ])[0-9a-f]{7,40}\b | (?<=[ ])[0-9a-f]{7,12}(?=\][ ])                 # a commit
    | (?<=@)[0-9a-f]{12}(?=:)                                                    # a container's id
    | (?<=__)[A-Za-z0-9]{7}\b                                                     # a trial's suffix
    | (?<![A-Za-z0-9])proctor-[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])                          # a token
    """,
    re.VERBOSE,
)
# Most lines have nothing of it, which is found out faster.
_HINT: Final = re.compile(r"\d|tmp|(?:call|toolu|msg|resp|cmpl|fc|rs|req|gen)[_-]|proctor-|__|@")
# Keys whose texts are ids that a client makes up.
_IDS: Final = frozenset(
    {
        *("id", "call_id", "tool_call_id", "tool_use_id", "item_id"),
        *("user", "user_id", "session_id", "safety_identifier", "prompt_cache_key"),
    }
)
# An id of the provider: a repeated answer has the same one, and it says which conversation it is.
_EXACT: Final = frozenset({"previous_response_id"})
_SHORT: Final = 256
_MOST_REMEMBERED: Final = 1 << 16
_FIRST_MOMENT: Final = 1_500_000_000


def normalize(text: str) -> str:
    """Return a text without what differs in every run."""
    lines = text.split("\n")
    return "\n".join(_VARYING.sub(_STAND_IN, x) if _HINT.search(x) else x for x in lines)


class Digester:
    """Digests requests; long texts, which each request of a conversation repeats, only once."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def digest(self, kind: str, path: str, body: bytes) -> str:
        """Return the digest of a request, by its method or protocol, its path and its body."""
        try:
            plain = self._reduce(msgspec.json.decode(body)) if body else None
            reduced = msgspec.json.encode(plain, order="deterministic")
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
            reduced = body
        return sha256_hex(f"{kind}\n{normalize(path)}\n".encode(errors="replace") + reduced)

    def _reduce(self, value: object) -> object:
        match value:
            case str():
                return self._reduce_text(value)
            case dict():
                return {key: self._reduce_field(key, each) for key, each in value.items()}
            case list():
                return [self._reduce(each) for each in value]
            case int() | float() if value >= _FIRST_MOMENT:
                return normalize(repr(value))
        return value

    def _reduce_field(self, key: str, value: object) -> object:
        if isinstance(value, str) and key in _IDS:
            return _STAND_IN
        return value if key in _EXACT else self._reduce(value)

    def _reduce_text(self, text: str) -> str:
        if len(text) < _SHORT:
            return normalize(text)
        key = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        found = self._known.get(key)
        if found is None:
            found = sha256_hex(normalize(text).encode(errors="surrogatepass"))
            if len(self._known) < _MOST_REMEMBERED:
                self._known[key] = found
        return found


_SHOWN: Final = 120
# How an exchange ended that can be repeated: the client got all of an answer.
_REPEATED: Final = frozenset({"complete", "failed", "refused"})
_STATUSES: Final = range(200, 600)
# Recorded requests to which one that differs is compared.
_MOST_COMPARED: Final = 64
_MOST_BYTES: Final = 4 << 30
"""Most bytes of all requests of a recording; a file can refer to one long request many times."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to be answered from a recording."""

    number: int
    """From 1, among the requests of its trial."""
    method: str
    wire: Wire | None
    path: str
    """Path and query below the provider's base URL."""
    body: bytes

    @property
    def kind(self) -> str:
        """Requests of one kind can be given each other's answers."""
        if self.wire is None:
            return f"{self.method} {self.path.partition('?')[0]}"
        is_stream = read_request(self.wire, self.path, self.body).is_stream
        return f"{self.wire}{' stream' if is_stream else ''}"


@dataclass(frozen=True, slots=True)
class _Taped:
    """A recorded exchange; its bytes stay in the file."""

    file: str
    place: Place
    number: int
    kind: str
    is_model: bool
    """Whether its protocol is one of a model's, and not a list of models or the like."""
    sha256: str
    """Digest of the exact request."""


@dataclass(slots=True)
class Cassette:
    """The exchanges of one recorded trial, each of which answers one request."""

    source: str
    """Where it was recorded, for messages."""
    files: Sequence[str]
    on_difference: OnDifference
    difference: str | None = None
    """A sentence about the first request that differs."""
    is_live: bool = False
    """Whether requests go to the provider by now."""
    is_stopped: bool = False
    """Whether no more requests are answered."""
    is_loaded: bool = False
    _taped: list[_Taped] = field(default_factory=list)
    _by_digest: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _used: set[int] = field(default_factory=set)
    _digester: Digester = field(default_factory=Digester)
    _is_torn: bool = False

    @property
    def n_recorded(self) -> int:
        """Recorded requests to models."""
        return sum(taped.is_model for taped in self._taped)

    def load(self) -> None:
        """Read the recording, once.

        Raises:
            TraceError: it cannot be read, has been edited, or is too large.
        """
        if self.is_loaded:
            return
        n_bytes = 0
        for file in self.files:
            for recorded in read_calls(file):
                n_bytes += len(recorded.request)
                if n_bytes > _MOST_BYTES:
                    raise TraceError(f"{file}: its requests have more than {_MOST_BYTES:,} bytes")
                self._add(file, recorded)
            self._is_torn = self._is_torn or _is_torn(file)
        self.is_loaded = True

    def _add(self, file: str, recorded: RecordedCall) -> None:
        call = recorded.call
        if call.ended not in _REPEATED or call.status not in _STATUSES or call.response.n_cut:
            return
        asked = _ask_again(recorded)
        digest = self._digest(asked)
        self._by_digest[digest].append(len(self._taped))
        is_model = asked.wire is not None
        sha256 = call.request_sha256
        taped = _Taped(file, recorded.place, call.number, asked.kind, is_model, sha256)
        self._taped.append(taped)

    def _digest(self, asked: Asked) -> str:
        return self._digester.digest(asked.wire or asked.method, asked.path, asked.body)

    async def find(self, asked: Asked, sha256: str) -> RecordedCall | str | None:
        """Return the exchange that answers a request; why it is refused; None if it goes live.

        `sha256` is the digest of its body.
        """
        if self.is_live:
            return None
        at = None
        if not self.is_stopped:
            at = self._take_same(asked, sha256)
            if at is None:
                at = await self._take_other(asked)
        if at is None:
            is_live = self.on_difference is OnDifference.LIVE
            return None if is_live else self.difference or "there is no recorded answer"
        try:
            return read_at(self._taped[at].file, self._taped[at].place)
        except TraceError as error:
            # It was whole when it was loaded.
            self.is_stopped, self.difference = True, str(error)
            return self.difference

    def _take_same(self, asked: Asked, sha256: str) -> int | None:
        same = [at for at in self._by_digest.get(self._digest(asked), ()) if at not in self._used]
        exact = (at for at in same if self._taped[at].sha256 == sha256)
        found = next(exact, same[0] if same else None)
        if found is not None:
            self._used.add(found)
        return found

    async def _take_other(self, asked: Asked) -> int | None:
        kind = asked.kind
        left = [
            at for at, one in enumerate(self._taped) if at not in self._used and one.kind == kind
        ]
        if self.on_difference is OnDifference.POSITION and left:
            self._used.add(left[0])
        if self.difference is None:
            # Set first: while the sentence is made, other requests of the trial may come.
            self.difference = f"request {asked.number} differs from {self.source}"
            self.is_live = self.on_difference is OnDifference.LIVE
            self.is_stopped = self.on_difference is OnDifference.STOP
            self.difference += await asyncio.to_thread(self._describe, asked, left)
        if self.on_difference is not OnDifference.POSITION:
            return None
        # Without an answer to give, a conversation with a model cannot go on.
        self.is_stopped = self.is_stopped or (not left and asked.wire is not None)
        return left[0] if left else None

    def _describe(self, asked: Asked, left: Sequence[int]) -> str:
        """Say how a request differs from the recorded one that is most like it."""
        torn = "; its last line is torn, because its run was killed" if self._is_torn else ""
        if asked.wire is None or not left:
            what = "" if asked.wire else f" {asked.method} {asked.path[:_SHOWN]}"
            n = self.n_recorded
            used = count_of(n, "exchange")
            return f": it has {used}, and none is left that answers{what or ' it'}{torn}"
        now = read_request(asked.wire, asked.path, asked.body)
        best, n_best = left[0], -1
        requests = dict(self._read_requests(left[:_MOST_COMPARED]))
        for at, before in requests.items():
            n_same = _count_same(before, now)
            if n_same > n_best:
                best, n_best = at, n_same
        if best not in requests:
            return f": the recording has changed since{torn}"
        return f", its request {self._taped[best].number}: " + describe_difference(
            requests[best], now
        )

    def _read_requests(self, places: Sequence[int]) -> Iterator[tuple[int, ModelRequest]]:
        wanted = {(self._taped[at].file, self._taped[at].place.offset): at for at in places}
        try:
            for file in self.files:
                for recorded in read_calls(file):
                    at = wanted.get((file, recorded.place.offset))
                    asked = _ask_again(recorded)
                    if at is not None and asked.wire is not None:
                        yield at, read_request(asked.wire, asked.path, asked.body)
        except TraceError:
            # It was whole when it was loaded; what was read until here is compared.
            return

    def find_unasked(self) -> str | None:
        """Return a sentence about recorded requests that were not repeated; None if all were."""
        left = [one for at, one in enumerate(self._taped) if one.is_model and at not in self._used]
        if not left or self.difference is not None:
            return None
        first = f"request {left[0].number} of {self.source} was not repeated"
        return first if len(left) == 1 else f"{first}, nor were {len(left) - 1} more of it"


def _ask_again(recorded: RecordedCall) -> Asked:
    call = recorded.call
    wire = Wire(call.wire) if call.wire in set(Wire) else None
    return Asked(call.number, call.method, wire, _find_path(call), recorded.request)


def _find_path(call: Call) -> str:
    try:
        base = urlsplit(call.address).path
    except ValueError:
        return call.path
    return call.path.removeprefix(base)


def _is_torn(file: str) -> bool:
    try:
        with Path(file).open("rb") as opened:
            opened.seek(-1, 2)
            return opened.read(1) != b"\n"
    except OSError:
        return False


def _count_same(before: ModelRequest, now: ModelRequest) -> int:
    n_same = 0
    for old, new in zip(before.turns, now.turns, strict=False):
        if _spell(old) != _spell(new):
            break
        n_same += 1
    return n_same


def describe_difference(before: ModelRequest, now: ModelRequest) -> str:
    """Say where two requests first differ."""
    if before.model != now.model:
        return f"it asks {now.model}, the recorded one {before.model}"
    pairs = zip(before.turns, now.turns, strict=False)
    for number, (old, new) in enumerate(pairs, 1):
        if _spell(old) != _spell(new):
            was, found = _show(_spell(old), _spell(new))
            return f"message {number} ({new.role}) is {found!r}; recorded: {was!r}"
    if len(before.turns) != len(now.turns):
        return f"it has {count_of(len(now.turns), 'message')}, the recorded one {len(before.turns)}"
    return "its tools or other options differ"


def _spell(turn: Turn) -> str:
    calls = [f"{call.name}({call.unparsed or call.arguments})" for call in turn.calls]
    return normalize("\n".join([turn.text, *calls, *(result.text for result in turn.results)]))


def _show(one: str, other: str) -> tuple[str, str]:
    """Return both texts from shortly before where they differ."""
    pairs = enumerate(zip(one, other, strict=False))
    at = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    begin = max(at - _SHOWN // 4, 0)
    return one[begin : begin + _SHOWN], other[begin : begin + _SHOWN]
