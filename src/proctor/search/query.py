r"""A query, parsed: words for the index, and filters that choose trials.

    apt-get install          both in one entry; words joined by signs are a phrase
    "unable to locate"       a phrase
    instal*                  words with this prefix
    -word, NOT word          not in the entry
    apt-get OR yum           either; OR binds its two neighbours before anything else
    role:tool_call tool:bash exit:0 exit:!0
    model:gpt-5 task:fix-* experiment:nightly trial:abc

The FTS5 expression is built from quoted words only, so that nothing typed is taken as its syntax.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proctor.errors import InputError
from proctor.search.row import clean_text
from proctor.search.tags import FAILED, exit_tag, role_tag, sign_tags, tool_tag

TRIAL_FILTERS = ("model", "task", "experiment", "trial")
"""Filters that choose trials; the others choose entries."""
FILTERS = ("role", "tool", "exit", *TRIAL_FILTERS)
MOST_TERMS = 64
LONGEST_QUERY = 2000
_SHORTEST_PREFIX = 2

_TOKEN = re.compile(
    r"""(?P<minus>-?)
        (?:(?P<name>[A-Za-z_]+):(?=[^\s:/\\]))?
        (?:"(?P<quoted>[^"]*)"(?P<star>\*?)|(?P<bare>[^\s"]+))""",
    re.VERBOSE,
)
_EXIT = re.compile(r"(!?)(-?[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class TrialCondition:
    """A condition on trials."""

    name: str
    """One of TRIAL_FILTERS."""
    value: str
    """Compared with the whole name and with its part after the last slash; * matches anything."""
    is_not: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query."""

    expression: str
    """The FTS5 expression; every word in it is quoted."""
    conditions: tuple[TrialCondition, ...]
    words: tuple[tuple[str, bool], ...]
    """The words to mark in texts, and whether each is a prefix."""


@dataclass(frozen=True, slots=True)
class _Term:
    name: str | None
    value: str
    is_not: bool
    is_prefix: bool


def parse_query(text: str) -> Query:
    """Parse a query.

    Raises:
        InputError: a quote is not closed, a filter is unknown, or there is nothing to search for.
    """
    terms = _split(_check_text(text))
    conditions: list[TrialCondition] = []
    wanted: list[str] = []
    unwanted: list[str] = []
    words: list[tuple[str, bool]] = []
    for group in _group(terms):
        if group[0].name in TRIAL_FILTERS and len(group) == 1:
            term = group[0]
            conditions.append(TrialCondition(str(term.name), term.value, term.is_not))
            continue
        built = " OR ".join(_build(term) for term in group)
        (unwanted if group[0].is_not else wanted).append(f"({built})")
        if not group[0].is_not:
            words += [(term.value, term.is_prefix) for term in group if term.name is None]
    if not wanted:
        raise InputError(
            f"the query {_shown(text)} has nothing to search for; expected a word, or one of "
            "role:, tool: and exit:"
        )
    expression = " AND ".join(wanted)
    if unwanted:
        expression = f"({expression}) NOT ({' OR '.join(unwanted)})"
    return Query(expression, tuple(conditions), tuple(words))


def _check_text(text: str) -> str:
    if len(text) > LONGEST_QUERY:
        raise InputError(
            f"a query of {len(text):,} characters; expected no more than {LONGEST_QUERY:,}"
        )
    if text.count('"') % 2:
        raise InputError(f"the query {_shown(text)} has an unclosed quote")
    return clean_text(text)


def _split(text: str) -> list[_Term | str]:
    """Split into terms and the word OR, in order."""
    found: list[_Term | str] = []
    is_not = False
    for match in _TOKEN.finditer(text):
        bare = match["bare"]
        if match["name"] is None and match["minus"] == "" and bare in ("OR", "AND", "NOT"):
            is_not = is_not or bare == "NOT"
            if bare == "OR":
                found.append(bare)
            continue
        found.append(_make_term(match, is_not=is_not or match["minus"] == "-"))
        is_not = False
    if len(found) > MOST_TERMS:
        raise InputError(f"a query of {len(found)} words; expected no more than {MOST_TERMS}")
    return found


def _make_term(match: re.Match[str], *, is_not: bool) -> _Term:
    name, bare = match["name"], match["bare"]
    if name is not None and name.lower() not in FILTERS:
        known = ", ".join(f"{each}:" for each in FILTERS)
        raise InputError(
            f"{_shown(name + ':')} is not a filter; expected one of {known}. To search for it "
            f"as text, quote it: '{_quote(match[0].lstrip('-'))}'"
        )
    name = name and name.lower()
    if bare is None:
        value, is_prefix = match["quoted"], match["star"] == "*"
    elif name in TRIAL_FILTERS:
        value, is_prefix = bare, False
    else:
        value, is_prefix = bare.rstrip("*"), bare.endswith("*")
    term = _Term(name, value, is_not, is_prefix)
    _check_term(term, match[0])
    return term


def _check_term(term: _Term, shown: str) -> None:
    if term.name is None and shown.endswith(":") and shown.strip("-:") in FILTERS:
        raise InputError(f"{_shown(shown)} has no value; expected one directly after the colon")
    n_letters = sum(char.isalnum() for char in term.value)
    if term.name in TRIAL_FILTERS or term.name == "role":
        is_enough = bool(term.value)
    else:
        is_enough = n_letters > 0 or term.name == "tool"
    if not is_enough:
        raise InputError(f"{_shown(shown)} has no letter or digit; only those are searched for")
    if term.is_prefix and term.name is None and n_letters < _SHORTEST_PREFIX:
        raise InputError(
            f"{_shown(shown)} is too short; expected {_SHORTEST_PREFIX} letters or digits before *"
        )


def _group(found: list[_Term | str]) -> Iterator[list[_Term]]:
    """Terms joined by OR as one group; every other term alone."""
    group: list[_Term] = []
    is_joined = False
    for each in found:
        if isinstance(each, str):
            is_joined = bool(group)
            continue
        if group and not is_joined:
            yield group
            group = []
        group.append(each)
        is_joined = False
        if len(group) > 1:
            _check_group(group)
    if group:
        yield group


def _check_group(group: list[_Term]) -> None:
    for term in group:
        if term.name in TRIAL_FILTERS or term.is_not:
            what = f"{term.name}:" if term.name in TRIAL_FILTERS else "an excluded word"
            raise InputError(
                f"{what} cannot be combined with OR; expected words, role:, tool: or exit:"
            )


def _build(term: _Term) -> str:
    match term.name:
        case None:
            return _build_word(term)
        case "exit":
            return _build_exit(term.value)
        case "role":
            return _build_tag(role_tag, term)
        case _:
            return _build_tag(tool_tag, term)


def _build_word(term: _Term) -> str:
    if term.is_prefix:
        return f"{_quote(term.value)} *"
    # The index drops signs, so words like C++ have a tag next to the text.
    words = [term.value, *sign_tags(term.value)]
    built = " AND ".join(map(_quote, words))
    return built if len(words) == 1 else f"({built})"


def _build_tag(make: Callable[[str], str], term: _Term) -> str:
    return f"{_quote(make(term.value))}{' *' if term.is_prefix else ''}"


def _build_exit(value: str) -> str:
    match = _EXIT.fullmatch(value)
    if match is None:
        raise InputError(
            f"exit:{value[:40]} is not an exit code; expected a number such as exit:0, or "
            "exit:!0 for any other than 0"
        )
    code = _quote(exit_tag(int(match[2])))
    if not match[1]:
        return code
    if int(match[2]) == 0:
        return _quote(FAILED)
    return f"(({_quote(FAILED)} OR {_quote(exit_tag(0))}) NOT {code})"


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
