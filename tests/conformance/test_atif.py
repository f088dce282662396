"""We take the ATIF documents that harbor's own validator takes, and it takes what we write."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.traces.atif.convert import from_entries, to_entries
from proctor.traces.atif.model import VERSIONS, Atif
from proctor.traces.atif.read import BEYOND_HARBOR, load_atif, parse_atif
from proctor.traces.atif.rules import render_atif, to_written_version
from proctor.traces.entry import Entry
from tests.conformance.theirs import harbor_module
from tests.examples import examples
from tests.traces.atif_mutations import VALUES, changed, every_field, mutations_of, paths_of
from tests.traces.atif_values import documents, entry_lists

DOCUMENT = every_field()
PATHS = list(paths_of(DOCUMENT))
REAL = sorted((Path(__file__).parent.parent / "data").rglob("agent/trajectory.json"))


def they_take(document: Any) -> bool:
    """What harbor's validator says of a value or of a file."""
    validator = harbor_module("harbor.utils.trajectory_validator").TrajectoryValidator()
    return bool(validator.validate(document))


def problems_in(document: Any) -> list[Diagnostic]:
    """What we object to, but for what JSON itself cannot hold."""
    read = parse_atif(json.dumps(document).encode(), salvage=True)
    return [d for d in read.diagnostics if d.is_problem and d.code not in BEYOND_HARBOR]


def differing(documents_: Any) -> list[tuple[bool, list[str], str]]:
    """The documents of which harbor and we think otherwise: its verdict, and our problems."""
    found = []
    for document in documents_:
        theirs, ours = they_take(document), problems_in(document)
        if theirs == bool(ours):
            found.append((theirs, [str(d) for d in ours], json.dumps(document)[:300]))
    return found


def test_every_changed_field_is_judged_as_harbor_judges_it() -> None:
    changes = list(mutations_of(DOCUMENT))
    assert differing(changes) == []
    verdicts = Counter(not problems_in(each) for each in changes[::4])
    assert min(verdicts[True], verdicts[False]) > 100, "both kinds are there in numbers"


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(VALUES)), min_size=2, max_size=4))
def test_several_changes_at_once_are_judged_as_harbor_judges_them(
    changes: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    document = DOCUMENT
    for path, value in changes:
        try:
            document = changed(document, path, value)
        except (KeyError, IndexError, TypeError):
            continue
    assert differing([document]) == []


@pytest.mark.parametrize("version", [*VERSIONS[:-1], "ATIF-v1.9", "ATIF-v2.0", "1.7", "atif-v1.7"])
def test_every_version_is_judged_as_harbor_judges_it(version: str) -> None:
    inner = {**DOCUMENT["subagent_trajectories"][0], "schema_version": version}
    document = {**DOCUMENT, "subagent_trajectories": [inner]}
    assert differing([{**DOCUMENT, "schema_version": version}, document]) == []


def test_subagents_may_be_nested_as_deep_as_in_harbor() -> None:
    document: dict[str, Any] = {"agent": {"name": "a", "version": "1"}, "trajectory_id": "t"}
    document["steps"] = [{"step_id": 1, "source": "user", "message": "x"}]
    nested = document
    verdicts = []
    for depth in range(1, 257):
        nested = {**document, "subagent_trajectories": [nested]}
        if depth >= 253:
            verdicts.append((they_take(nested), not problems_in(nested)))
    assert verdicts == [(True, True), (True, True), (False, False), (False, False)]


TIMES = (
    *("2026-01-01", "2026-01-01T00:00:00Z", "20260101T000000Z", "2026-W01-1", "2026-01-01 10:00"),
    *("2026-13-01", "now", "", "Z", "2026Z", "2026-01-01T00:00:00z", "2026-01-01TZ", "12:00"),
    *("2026-01-01T24:00:00", "2026-01-01T00:00:00+25:00", "2026-01-01T00:00:00.123456789+01:00"),
)


@given(
    st.sampled_from(TIMES) | st.datetimes().map(str) | st.text("0123456789-T:.Z+W ", max_size=26)
)
def test_times_are_judged_as_harbor_judges_them(time: str) -> None:
    assert differing([changed(DOCUMENT, ("steps", 0, "timestamp"), time)]) == []


@pytest.mark.parametrize(
    ("data", "taken"),
    [
        (b"", False),
        (b" \n", False),
        (b"[]", False),
        (b"null", False),
        (b"{", False),
        (b"\xef\xbb\xbf%s", False),
        (b"%s\n\n", True),
        (b"%s {}", False),
    ],
)
def test_files_are_judged_as_harbor_judges_them(tmp_path: Path, data: bytes, taken: bool) -> None:
    path = tmp_path / "trajectory.json"
    path.write_bytes(data.replace(b"%s", json.dumps(DOCUMENT).encode()))
    assert they_take(path) is taken
    if taken:
        assert load_atif(path).atif == parse_atif(json.dumps(DOCUMENT).encode()).atif
    else:
        with pytest.raises(TraceError, match=r"trajectory\.json.*expected"):
            load_atif(path)


def test_every_real_document_comes_back_whole_and_passes(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    assert len(REAL) >= 100
    for real in REAL:
        atif = load_atif(real).atif
        entries, losses = to_entries(atif)
        back, others = from_entries(entries)
        assert (back, losses, others) == (atif, [], [])
        path.write_bytes(render_atif(back))
        assert they_take(path)
        assert json.loads(path.read_bytes()) == json.loads(real.read_bytes())


@settings(max_examples=examples(50))
@given(documents())
def test_what_we_write_of_any_document_passes(atif: Atif) -> None:
    written, _ = to_written_version(atif)
    assert they_take(json.loads(render_atif(written)))


@settings(max_examples=examples(50))
@given(entry_lists())
def test_what_we_make_of_any_entries_passes(entries: list[Entry]) -> None:
    atif, _ = from_entries(entries)
    assert they_take(json.loads(render_atif(atif)))
