"""Traces for the pages without a browser: sealed ones, large ones, ones that change underneath."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from proctor.errors import ChangedTraceError
from proctor.ledger.step_parts import LARGE
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.sanitize import fold, make_plain
from proctor.web.traces.entry_filter import find_text
from proctor.web.traces.index import build_index
from proctor.web.traces.lines import FileLines, stamp_of
from proctor.web.traces.rows import Showing, read_rows
from tests.ledger.trials import open_ledger, seal_files
from tests.search.ledgers import TRACE, gave, lines, ran, said
from tests.web.traces import HOSTILE, touch_later, write_long, write_trial

OBEYED = "\x00\x07\x08\x1b\x7f\x9b\u200b\u200e\u202a\u202e\u2028\u2066\ufeff\ud800\U000e0041"
WHY = {"reason": "a key was in it", "author": "anna"}


def client_of(source: DataSource) -> TestClient:
    """The viewer, asked without a network."""
    return TestClient(make_app(source), base_url="http://127.0.0.1", raise_server_exceptions=False)


def open_lines(path: Path) -> FileLines:
    """The lines of a file."""
    return FileLines(str(path), stamp_of(path.stat()))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of sealed steps goes to a place of its own."""
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("cache")
def test_a_large_sealed_trace_is_read_frame_by_frame(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    write_long(path, 26_000)
    assert path.stat().st_size > LARGE
    with open_ledger(tmp_path) as ledger:
        sealed = seal_files(ledger, "long", {TRACE: path.read_bytes()})
    with client_of(DataSource(ledger=tmp_path / "ledger")) as client:
        base = f"/trials/{sealed.experiment_id}/long"
        answer = client.get(f"{base}/steps?around=step-25000&count=4").json()
        assert [row["step"] for row in answer["rows"]] == [24999, 24999, 25000, 25000]
        assert answer["total"] == 78_001
        assert client.get(f"{base}/find?q=FILE_25999.py").json()["at"] == [77_996]
        # What is damaged is said, and not shown.
        for part in (tmp_path / "ledger" / "artifacts").rglob("*.zst"):
            data = bytearray(part.read_bytes())
            data[len(data) // 2] ^= 1
            part.write_bytes(data)
            touch_later(part)
        answer = client.get(f"{base}/steps?from=40000&count=1")
        assert answer.status_code == 500
        assert "artifact" in answer.json()["problem"]


def test_withheld_traces_are_no_longer_shown(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        sealed = seal_files(ledger, "leaky", {TRACE: lines(said("the key is hunter2"))})
        base = f"/trials/{sealed.experiment_id}/leaky"
        with client_of(DataSource(ledger=tmp_path / "ledger")) as client:
            assert "hunter2" in client.get(f"{base}/trace").text
            ledger.withhold(ledger.find("leaky"), **WHY)
            answer = client.get(f"{base}/trace")
            assert answer.status_code == 404
            assert "hunter2" not in answer.text
            assert client.get(f"{base}/steps").status_code == 404


def test_every_entry_is_read_wherever_it_lies(tmp_path: Path) -> None:
    steps = [(said(f"text {n}", n), ran(f"run {n}", n), gave("x" * (n % 700), n % 2, n)) for n in
             range(1, 400)]  # fmt: skip
    path = write_trial(tmp_path, "t", [entry for step in steps for entry in step])
    found = open_lines(path)
    index = build_index(found)
    assert (len(index), index.count_steps(), len(index.errors)) == (1197, 399, 200)
    showing = Showing(base="/trials/e/t", has_file=lambda _: False)
    for begin in range(0, 1197, 97):
        rows = read_rows(found, index, range(begin, min(begin + 5, 1197)), showing)
        assert [row.row for row in rows] == list(range(begin, begin + len(rows)))
        assert rows[0].step == begin // 3 + 1
    assert index.find_step(400) is None
    assert find_text(found, index, "TEXT 399").rows == [1194]


def test_lines_of_a_file_that_changed_are_not_given(tmp_path: Path) -> None:
    path = write_trial(tmp_path, "t", [said("one"), said("two", 2)])
    found = open_lines(path)
    index = build_index(found)
    write_trial(tmp_path, "t", [said("other")])
    touch_later(path)
    showing = Showing(base="/trials/e/t", has_file=lambda _: False)
    with pytest.raises(ChangedTraceError, match="is being written; load the page again"):
        read_rows(found, index, [1], showing)


def test_many_requests_at_once_get_the_same_answer(tmp_path: Path) -> None:
    write_trial(tmp_path / "job", "t", [said(f"text {n}", n) for n in range(1, 300)])
    with (
        client_of(DataSource(jobs=(tmp_path / "job",))) as client,
        ThreadPoolExecutor(20) as pool,
    ):
        asked = pool.map(lambda n: client.get(f"/trials/job/t/steps?from={n}&count=1"), range(100))
        assert [answer.json()["rows"][0]["step"] for answer in asked] == list(range(1, 101))


@pytest.mark.parametrize("name", ["trace", "steps", "outline", "find"])
@pytest.mark.parametrize(
    "place", ["job/none", "none/t", "job/..", "job/%2e%2e", "..%2f..%2fetc/passwd", "job/t%00"]
)
def test_names_that_lead_nowhere_are_not_found(tmp_path: Path, name: str, place: str) -> None:
    write_trial(tmp_path / "job", "t", [said("one")])
    write_trial(tmp_path, "outside", [said("secret")])
    with client_of(DataSource(jobs=(tmp_path / "job",))) as client:
        answer = client.get(f"/trials/{place}/{name}")
        assert answer.status_code == 404
        assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("is_over", "text"), [(True, "has no trace:"), (False, "has no result and no trace yet")]
)
def test_a_trial_without_a_trace_says_so(tmp_path: Path, is_over: bool, text: str) -> None:
    (tmp_path / "job" / "t").mkdir(parents=True)
    if is_over:
        (tmp_path / "job" / "t" / "result.json").write_text("{}")
    with client_of(DataSource(jobs=(tmp_path / "job",))) as client:
        answer = client.get("/trials/job/t/trace")
        assert answer.status_code == 404
        assert text in answer.text
        assert ("trace_wait.js" in answer.text) is not is_over


def test_nothing_of_a_hostile_trace_is_markup(tmp_path: Path) -> None:
    write_trial(tmp_path / "job", "t", HOSTILE)
    with client_of(DataSource(jobs=(tmp_path / "job",))) as client:
        text = client.get("/trials/job/t/trace").text
        assert "alert(1)" in text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "<svg/onload" not in text
        assert 'href="javascript' not in text


@given(st.text(st.one_of(st.characters(), st.sampled_from(OBEYED))))
def test_plain_text_has_nothing_that_a_screen_obeys(text: str) -> None:
    plain = make_plain(text)
    assert not set(OBEYED) & set(plain)
    plain.encode()


@given(st.text(alphabet="ab\n", max_size=9000))
def test_what_is_folded_is_accounted_for(text: str) -> None:
    found = fold(text)
    assert len(found.text) + len(found.end) + found.characters == len(text.removesuffix("\n"))
    assert text.startswith(found.text)


def test_search_and_trace_share_the_links_of_a_part(tmp_path: Path) -> None:
    write_trial(tmp_path / "job", "t", [said("needle")], "steps/a b/agent/trajectory.jsonl")
    with client_of(DataSource(jobs=(tmp_path / "job",))) as client:
        text = client.get("/search?q=needle").text
        assert 'href="/trials/job/t/trace?part=a+b#step-1"' in text
        assert client.get("/trials/job/t/trace?part=a+b").status_code == 200
