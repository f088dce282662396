r"""A query, parsed: an FTS5 expression, and conditions that choose trials.

    apt-get install          both in one entry; words joined by signs are a phrase
    "unable to locate"       a phrase
    instal*                  words with this prefix
    -word, NOT word          not in the entry
    apt-get OR yum           either; OR binds its two neighbours before anything else
    role:tool_call tool:bash exit:0 exit:!0
    model:gpt-5 task:fix-* experiment:nightly trial:abc

Words are looked up in the column `body` of the index; roles, tools, exit codes and words such as
C++ in the column `tags`, where each is one word in hex. Everything typed is quoted, so that none of
it is taken as FTS5's syntax.
"""

import re
from dataclasses import dataclass

from proctor.errors import InputError
from proctor.search.row import clean_text

TRIAL_FILTERS = ("model", "task", "experiment", "trial")
"""Filters that choose trials; the others choose entries."""
FILTERS = ("role", "tool", "exit", *TRIAL_FILTERS)
MOST_TERMS = 64
LONGEST_QUERY = 2000
_SHORTEST_PREFIX = 2
_LONGEST_NAME = 100

_TOKEN = re.compile(
    r"""(?P<minus>-?)
        (?:(?P<name>[A-Za-z_]+):(?=[^\s:/\\]))?
        (?:"(?P<quoted>[^"]*)"(?P<star>\*?)|(?P<bare>[^\s"]+))""",
    re.VERBOSE,
)
_EXIT = re.compile(r"(!?)(-?[0-9]{1,9})")
# A word with a sign that the index drops: C++, C#.
_SIGNED = re.compile(r"(?<![^\W_])[^\W_]{1,30}(?:\+\+|#)(?![^\W_])")


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
    """The FTS5 expression; everything typed is quoted in it."""
    conditions: tuple[TrialCondition, ...]
    words: tuple[tuple[str, bool], ...]
    """The words to mark in texts, and whether each is a prefix."""


@dataclass(frozen=True, slots=True)
class _Term:
    name: str | None
    value: str
    is_not: bool
    is_prefix: bool


def tag(name: str, value: object) -> str:
    """The word in the index for a role, a tool or an exit code; case is ignored."""
    return name[0] + str(value)[:_LONGEST_NAME].lower().encode("utf-8", "replace").hex()


FAILED = tag("exit", "failed")
"""The word for any exit code but 0."""


def sign_tags(text: str) -> list[str]:
    """The words for C++, C# and the like in a text."""
    if "++" not in text and "#" not in text:
        return []
    return list(dict.fromkeys(tag("sign", found[0]) for found in _SIGNED.finditer(text)))


def parse_query(text: str) -> Query:
    """Parse a query.

    Raises:
        InputError: a quote is not closed, a filter is unknown, or there is nothing to search for.
    """
    if len(text) > LONGEST_QUERY:
        raise InputError(
            f"a query of {len(text):,} characters; expected no more than {LONGEST_QUERY:,}"
        )
    if text.count('"') % 2:
        raise InputError(f"the query {_shown(text)} has an unclosed quote")
    conditions: list[TrialCondition] = []
    wanted: list[str] = []
    unwanted: list[str] = []
    words: list[tuple[str, bool]] = []
    for group in _group(clean_text(text)):
        first = group[0]
        if first.name in TRIAL_FILTERS:
            conditions.append(TrialCondition(str(first.name), first.value, first.is_not))
            continue
        built = f"({' OR '.join(map(_build, group))})"
        (unwanted if first.is_not else wanted).append(built)
        if not first.is_not:
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


def _group(text: str) -> list[list[_Term]]:
    """The terms: those joined by OR as one group, every other one alone."""
    groups: list[list[_Term]] = []
    is_not = is_joined = False
    for match in _TOKEN.finditer(text):
        if match[0] in ("OR", "AND", "NOT"):
            is_not = is_not or match[0] == "NOT"
            is_joined = is_joined or (match[0] == "OR" and bool(groups))
            continue
        term = _make_term(match, is_not=is_not or bool(match["minus"]))
        if is_joined:
            groups[-1].append(term)
        else:
            groups.append([term])
        is_not = is_joined = False
    if (n_terms := sum(map(len, groups))) > MOST_TERMS:
        raise InputError(f"a query of {n_terms} words; expected no more than {MOST_TERMS}")
    for term in (term for group in groups if len(group) > 1 for term in group):
        if term.name in TRIAL_FILTERS or term.is_not:
            what = f"{term.name}:" if term.name in TRIAL_FILTERS else "an excluded word"
            raise InputError(
                f"{what} cannot be combined with OR; expected words, role:, tool: or exit:"
            )
    return groups


def _make_term(match: re.Match[str], *, is_not: bool) -> _Term:
    shown, name = match[0], match["name"] and match["name"].lower()
    if name is not None and name not in FILTERS:
        known = ", ".join(f"{each}:" for each in FILTERS)
        raise InputError(
            f"{_shown(match['name'] + ':')} is not a filter; expected one of {known}. To search "
            f"for it as text, quote it: '{quote(shown.lstrip('-'))}'"
        )
    if name is None and shown.endswith(":") and shown.strip("-:") in FILTERS:
        raise InputError(f"{_shown(shown)} has no value; expected one directly after the colon")
    if match["bare"] is None:
        value, is_prefix = match["quoted"], match["star"] == "*"
    elif name in TRIAL_FILTERS:
        value, is_prefix = match["bare"], False
    else:
        value, is_prefix = match["bare"].rstrip("*"), match["bare"].endswith("*")
    n_letters = sum(char.isalnum() for char in value)
    is_enough = value if name in (*TRIAL_FILTERS, "role") else n_letters or name == "tool"
    if not is_enough:
        raise InputError(f"{_shown(shown)} has no letter or digit; only those are searched for")
    if is_prefix and name is None and n_letters < _SHORTEST_PREFIX:
        raise InputError(
            f"{_shown(shown)} is too short; expected {_SHORTEST_PREFIX} letters or digits before *"
        )
    return _Term(name, value, is_not, is_prefix)


def _build(term: _Term) -> str:
    star = " *" if term.is_prefix else ""
    if term.name is None:
        signs = [] if term.is_prefix else sign_tags(term.value)
        return " AND ".join([f"body : {quote(term.value)}{star}", *map(_build_tag, signs)])
    if term.name != "exit":
        return _build_tag(tag(term.name, term.value)) + star
    match = _EXIT.fullmatch(term.value)
    if match is None:
        raise InputError(
            f"exit:{term.value[:40]} is not an exit code; expected a number such as exit:0, or "
            "exit:!0 for any other than 0"
        )
    code = _build_tag(tag("exit", int(match[2])))
    if not match[1]:
        return code
    return f"(({_build_tag(FAILED)} OR {_build_tag(tag('exit', 0))}) NOT {code})"


def _build_tag(word: str) -> str:
    return f'tags : "{word}"'


def quote(text: str) -> str:
    """A text as a string of FTS5."""
    return '"' + text.replace('"', '""') + '"'


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
