"""Requests without what differs in every run, so that a repeated request can be recognized.

    normalize(text)                      dates, times, durations, ids, ports, temporary names: ~
    Digester().digest(kind, path, body)  the same for two requests that differ only in these

A request is compared as JSON, whatever the order of its keys. A body that is not JSON is compared
byte by byte.
"""

import re
from hashlib import blake2b
from typing import Final

import msgspec

from proctor.digest import sha256_hex

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
