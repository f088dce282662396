"""What running trials have cost so far, on the page of a job and in the list of jobs."""

from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import pytest

from proctor.gateway.exchange import ModelAnswer, ModelRequest
from proctor.gateway.trace import ExchangeFacts, TraceBuilder
from proctor.record.cost import CostBasis, Usage, reported_cost, unknown_cost
from proctor.traces.entry import MODEL_TRACE, Header
from proctor.traces.turn import Turn
from proctor.web import job_directories, live_cost
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.job_directories import JobFiles
from proctor.web.live_cost import LiveCosts
from tests.web.browsing import NO_TLS, serving
from tests.web.jobs import JOB, GrowingJob
from tests.web.test_job_page import figures_of


class Talk:
    """Exchanges of one agent, in the file that the gateway writes."""

    def __init__(self, trial: Path) -> None:
        self.file = trial / "agent" / MODEL_TRACE
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_bytes(msgspec.json.encode(Header()) + b"\n")
        self._builder = TraceBuilder()
        self._turns: list[Turn] = []

    def pay(self, cost: CostBasis, *, text: str = "done") -> None:
        """One more exchange."""
        said = Turn(line=1, role="assistant", text=text)
        self._turns.append(Turn(line=1, role="user", text=f"question {len(self._turns)}"))
        request = ModelRequest(turns=tuple(self._turns))
        answer = ModelAnswer(turn=said, model="m", usage=Usage(input=10, output=2))
        facts = ExchangeFacts(number=len(self._turns), cost=cost)
        entries = self._builder.add(request, answer, datetime.now(UTC), 0.1, facts)
        self._turns.append(said)
        with self.file.open("ab") as file:
            file.writelines(msgspec.json.encode(entry) + b"\n" for entry in entries)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reading is reused."""
    monkeypatch.setattr(job_directories, "_COSTS_FRESH", 0.0)
    monkeypatch.setattr(job_directories, "_FRESH", {False: 0.0, True: 0.0})


@pytest.mark.usefixtures("at_once")
def test_the_cost_of_running_trials_is_on_both_pages_until_they_end(tmp_path: Path) -> None:
    job = GrowingJob(tmp_path)
    job.end(0)
    source = DataSource(jobs=(job.directory,))
    with serving(make_app(source)) as address, httpx.Client(verify=NO_TLS) as client:

        def look() -> tuple[str, bool]:
            text = client.get(f"{address}/experiments/{JOB}").text
            return figures_of(text).get("No result yet", ""), "$0.3700 so far" in text

        talks = [Talk(job.begin(number)) for number in (1, 2)]
        assert look() == ("2", False)
        talks[0].pay(reported_cost(0.25))
        talks[1].pay(reported_cost(0.04))
        talks[1].pay(reported_cost(0.08))
        assert look() == ("2", True)
        assert "$0.3700 so far" in client.get(address).text
        trials = client.get(f"{address}/experiments/{JOB}?view=trials").text
        assert "$0.2500" in trials
        assert "$0.1200" in trials
        job.end(1)
        job.end(2)
        assert look() == ("", False)
        assert "so far" not in client.get(address).text


@pytest.mark.usefixtures("at_once")
def test_the_version_of_a_job_changes_with_the_cost_alone(tmp_path: Path) -> None:
    job = GrowingJob(tmp_path)
    talk, files = Talk(job.begin(0)), JobFiles(job.directory)
    versions = [files.look().version for _ in range(2)]
    talk.pay(reported_cost(1.5))
    versions += [files.look().version for _ in range(2)]
    assert versions[0] == versions[1] != versions[2] == versions[3]
    assert files.live_cost() == 1.5


def test_a_file_is_read_once_however_often_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[bytes] = []
    find_cost = live_cost._find_cost

    def note(line: bytes) -> float | None:
        lines.append(line)
        return find_cost(line)

    monkeypatch.setattr(live_cost, "_find_cost", note)
    talk, costs = Talk(tmp_path), LiveCosts()
    for number in range(1, 6):
        talk.pay(reported_cost(0.5))
        assert costs.find([str(tmp_path)]) == {str(tmp_path): 0.5 * number}
        assert costs.find([str(tmp_path)]) == {str(tmp_path): 0.5 * number}
    assert b"".join(line + b"\n" for line in lines) == talk.file.read_bytes()


def test_a_line_that_is_being_written_counts_once_it_is_whole(tmp_path: Path) -> None:
    talk, costs = Talk(tmp_path), LiveCosts()
    talk.pay(reported_cost(0.5))
    talk.pay(reported_cost(0.25))
    whole = talk.file.read_bytes()
    for size, usd in ((len(whole) - 9, 0.5), (len(whole), 0.75), (9, None)):
        talk.file.write_bytes(whole[:size])
        assert costs.find([str(tmp_path)]).get(str(tmp_path)) == usd


def test_files_of_earlier_steps_count_and_are_not_read_again(tmp_path: Path) -> None:
    talk, costs = Talk(tmp_path), LiveCosts()
    talk.pay(reported_cost(0.5))
    assert costs.find([str(tmp_path)]) == {str(tmp_path): 0.5}
    step = tmp_path / "steps" / "one"
    step.mkdir(parents=True)
    (tmp_path / "agent").rename(step / "agent")
    Talk(tmp_path).pay(reported_cost(0.25))
    assert costs.find([str(tmp_path)]) == {str(tmp_path): 0.75}
    assert len(costs._readings) == 2
    assert costs.find([]) == {}
    assert not costs._readings


def test_unknown_prices_strange_lines_and_links_cost_nothing_known(tmp_path: Path) -> None:
    talk, costs = Talk(tmp_path), LiveCosts()
    talk.pay(unknown_cost("no price"))
    with talk.file.open("ab") as file:
        file.write(b'{"metadata": 5}\n\xff\xfe\n[]\n' + b"[" * 100_000 + b"\n")
    assert costs.find([str(tmp_path)]) == {}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Talk(elsewhere).pay(reported_cost(1.0))
    talk.file.unlink()
    talk.file.symlink_to(elsewhere / "agent" / MODEL_TRACE)
    assert costs.find([str(tmp_path)]) == {}
