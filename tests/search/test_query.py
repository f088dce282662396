"""What somebody types is understood, or refused in a sentence; it is never the index's syntax."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.search.index import SearchIndex
from proctor.search.query import FILTERS, parse_query
from tests.search.ledgers import anchors, ask, make_searched


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_searched(tmp_path_factory.mktemp("searched"))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("apt-get", ["worked#1 tool_call", "failed#1 tool_call"]),
        ("APT-GET", ["worked#1 tool_call", "failed#1 tool_call"]),
        ("role:tool_call apt-get exit:!0", ["failed#1 tool_call"]),
        ("tool:bash apt-get exit:100", ["failed#1 tool_call"]),
        ("tool:BA* exit:!100 apt-get", ["worked#1 tool_call"]),
        ("apt-get -install", ["worked#1 tool_call"]),
        ("apt-get NOT install", ["worked#1 tool_call"]),
        ("apt-get AND update", ["worked#1 tool_call"]),
        ('"unable to locate"', ["failed#1 tool_result"]),
        ('"locate unable"', []),
        ("unable package", ["failed#1 tool_result"]),
        ("unable compiler", []),
        ("updat* OR passwd", ["worked#1 tool_call", "failed#2 tool_call"]),
        ("role:tool_call update OR passwd", ["worked#1 tool_call", "failed#2 tool_call"]),
        ("/etc/passwd", ["failed#2 tool_call"]),
        ("foo_bar.py", ["failed#2 tool_call"]),
        ("C++", ["failed#1 assistant"]),
        ('"for C++"', ["failed#1 assistant"]),
        ("g++", ["failed#1 tool_result", "failed#1 tool_call"]),
        ("model:gpt-5 apt-get", ["worked#1 tool_call"]),
        ("model:openai/* apt-get", ["worked#1 tool_call"]),
        ("-model:gpt-5 apt-get", ["failed#1 tool_call"]),
        ("task:fix-* apt-get", ["worked#1 tool_call"]),
        ('trial:"worked" experiment:experiment-001 apt-get', ["worked#1 tool_call"]),
        ("trial:w_rked apt-get", []),
        ("experiment:other apt-get", []),
        ("role:tool_result exit:0 -hit", ["failed#2 tool_result"]),
        ("http://nowhere", []),
        ("root:x:0:0", ["failed#2 tool_result"]),
    ],
)
def test_a_query_finds(ledger: Path, query: str, found: list[str]) -> None:
    if query == "root:x:0:0":
        query = f'"{query}"'
    assert anchors(ask(ledger, query)) == found


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ('say "this', "has an unclosed quote"),
        ("rolle:user x", "'rolle:' is not a filter; expected one of role:, tool:, exit:"),
        ("host:80", "as text, quote it"),
        ("role: user", "'role:' has no value"),
        ("&&", "has no letter or digit"),
        ("-apt", "has nothing to search for"),
        ("", "has nothing to search for"),
        ("NOT", "has nothing to search for"),
        ("model:gpt-5", "has nothing to search for"),
        ("exit:many", "is not an exit code"),
        ("x*", "is too short"),
        ("this OR model:x", "model: cannot be combined with OR"),
        ("this OR -that", "cannot be combined with OR"),
        ("x " * 65, "no more than 64"),
        ("x" * 2001, "no more than 2,000"),
    ],
)
def test_a_query_is_refused_in_a_sentence(query: str, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_query(query)
    assert sentence in str(refused.value)


PIECES = st.sampled_from(
    ['"', "-", "*", "(", ")", ":", "^", "+", "{", "}", " ", " OR ", " NOT ", " AND ", "NEAR(", "\0"]
    + [f"{name}:" for name in FILTERS]
    + ["a", "b1", "é", "C++", "c#", "!0", "7", "'", ";", "--", "rows", "\ue000", "\ud800", "İ", "ß"]
)


@given(st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join))
def test_no_query_is_an_error_of_the_index(text: str) -> None:
    try:
        query = parse_query(text)
    except InputError:
        return
    index = _empty_index()
    statement = "SELECT rowid FROM rows WHERE rows MATCH ?"
    assert index.connection.execute(statement, (query.expression,)).fetchall() == []


def _empty_index() -> SearchIndex:
    if not _EMPTY:
        _EMPTY.append(SearchIndex.in_memory())
    return _EMPTY[0]


_EMPTY: list[SearchIndex] = []


def test_the_index_that_is_asked_above_does_refuse_what_is_not_quoted() -> None:
    with pytest.raises(sqlite3.Error):
        _empty_index().connection.execute("SELECT 1 FROM rows WHERE rows MATCH ?", ("a AND (",))
