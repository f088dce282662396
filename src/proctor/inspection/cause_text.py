"""Words in logs that name a cause. A line is quoted whole, so that a person can judge it."""

import re
from collections.abc import Sequence
from typing import Final

from proctor.inspection.causes import Evidence, LogText, quoted

NETWORK: Final = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known"
    r"|temporary failure resolving|nodename nor servname|no address associated with hostname"
    r"|curl: \((?:5|6|7|28|35|52|56)\)|wget: unable to resolve|network is unreachable"
    r"|no route to host|tls handshake timeout|i/o timeout|error sending request for url"
    r"|failed to download|failed to fetch|unable to fetch some archives|max retries exceeded"
    r"|readtimeouterror|proxyerror|connecttimeout|newconnectionerror|toomanyrequests"
    r"|dns error|connection timed out|502 bad gateway|503 service unavailable",
    re.IGNORECASE,
)
"""A download that failed, or a name that was not resolved."""
MACHINE: Final = re.compile(
    r"no space left on device|cannot allocate memory|out of memory|oom-?kill"
    r"|too many open files|read-only file system|input/output error|resource temporarily unavail",
    re.IGNORECASE,
)
"""The machine gave out."""
RAN: Final = re.compile(
    r"^={2,80} .{0,200}\b(?:passed|failed)\b"
    r"|^(?:Ran \d+ tests?|ok \d+|not ok \d+|PASS(?:ED)?|FAIL(?:ED)?)\b"
    r"|\b\d+ (?:passed|failed)\b",
    re.MULTILINE,
)
"""Tests that ran and were counted: what they say of networks is about the agent's work."""
NO_TESTS: Final = re.compile(
    r"no tests ran|collected 0 items|INTERNALERROR|file or directory not found: /tests"
    r"|(?:pytest|uvx|uv|python3?|node|npm): (?:command )?not found|No module named '?pytest",
)
"""Tests that never began."""
FAILED: Final = re.compile(r"^(?:FAILED|FAIL:?|not ok|ERROR)\b", re.MULTILINE)
"""A test that failed."""
ENDPOINT: Final = re.compile(
    r"apiconnectionerror|apitimeouterror|ratelimiterror|rate.?limit|internalservererror"
    r"|serviceunavailable|authenticationerror|invalid api key|insufficient_quota|overloaded"
    r"|connection (?:refused|reset|aborted)|connecterror"
    r"|(?:status|error|code|http)\W{0,12}(?:429|5\d\d)\b",
    re.IGNORECASE,
)
"""A model's endpoint that gave no answer."""
_LOCAL: Final = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]")


def find_line(
    logs: Sequence[LogText], words: re.Pattern[str], *, local: bool = True
) -> Evidence | None:
    """The first line with one of the words; without `local`, lines about this machine are none."""
    for log in logs:
        for match in words.finditer(log.text):
            start = log.text.rfind("\n", 0, match.start()) + 1
            end = log.text.find("\n", match.end())
            line = log.text[start : end if end >= 0 else len(log.text)]
            if local or not _LOCAL.search(line):
                return quoted(log.name, line[:2000])
    return None


def has_run(logs: Sequence[LogText]) -> bool:
    """Whether tests were counted in what the verifier printed."""
    return any(RAN.search(log.text) for log in logs)
