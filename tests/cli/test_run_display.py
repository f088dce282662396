"""What a person sees while a job runs: lines, or a drawing that fits the terminal."""

import io
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from proctor.cli.running.display import Lines, Silent, watching
from proctor.cli.running.drawing import Drawing
from proctor.cli.running.watching import (
    Progress,
    RunningTrial,
    render_ended,
    render_left,
    render_running,
)
from proctor.harbor.configs import TaskConfig, TrialConfig
from proctor.harbor.stats import JobStats, TrialTable, assemble_live, builtin_metrics
from proctor.harbor.trial_result import (
    AgentInfo,
    ExceptionInfo,
    LocalTaskId,
    TrialResult,
    VerifierResult,
    counted,
)
from proctor.job.watch import Watch

NOW = datetime(2026, 11, 15, 10, tzinfo=UTC)
HOSTILE = "a\x1b[2Jb\r\n\x07"


def make_result(
    name: str, rewards: dict[str, float | int] | None, exception: str | None = None
) -> TrialResult:
    """The result of a trial that took 12.34 seconds."""
    error = ExceptionInfo(
        exception_type=exception or "",
        exception_message="",
        exception_traceback="",
        occurred_at=NOW,
    )
    return TrialResult(
        task_name="task",
        trial_name=name,
        trial_uri="file:///x",
        task_id=LocalTaskId(path="x"),
        task_checksum="",
        config=TrialConfig(task=TaskConfig(path=Path("x")), trial_name=name, trials_dir=Path("j")),
        agent_info=AgentInfo(name="oracle", version="1"),
        verifier_result=VerifierResult(rewards=rewards) if rewards is not None else None,
        exception_info=error if exception else None,
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=12.34),
    )


def stats_of(*results: TrialResult) -> JobStats:
    """The figures of a job that has these trials."""
    return assemble_live(TrialTable(map(counted, results)), {"adhoc": builtin_metrics(["mean"])})


def tell(watch: Watch, results: list[TrialResult]) -> None:
    """A job of four trials, told to whoever looks on."""
    watch.job_planned(4, 0)
    for number, result in enumerate(results, 1):
        watch.trial_started(result.trial_name, "task", 1)
        watch.phase_began(result.trial_name, "agent")
        watch.trial_ended(result.trial_name, result, stats_of(*results[:number]))


RESULTS = [
    make_result("one__a", {"reward": 1}),
    make_result("two__b", None, "AgentTimeoutError"),
    make_result(f"three__{HOSTILE}", {"x": 0.5, "y": 1.0}, "RuntimeError"),
]


def test_without_a_terminal_there_is_a_line_for_each_trial(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch = Lines()
    tell(watch, RESULTS)
    watch.trial_retried("four__d", 2, make_result("four__d", None, "RuntimeError"), 2.0)
    watch.said(f"note {HOSTILE}")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "4 trials",
        "[1/4] one__a: reward 1, 12.3s",
        "[2/4] two__b: AgentTimeoutError, not scored, 12.3s",
        r"[3/4] three__a\x1b[2Jb\r\n\x07: RuntimeError, x 0.5, y 1, 12.3s",
        "four__d: attempt 2 failed: RuntimeError; retrying in 2.0s",
        r"note a\x1b[2Jb\r\n\x07",
    ]


def test_quiet_says_only_what_one_must_know(capsys: pytest.CaptureFixture[str]) -> None:
    with watching("job", quiet=True) as watch:
        assert isinstance(watch, Silent)
        tell(watch, RESULTS)
        watch.said("the network is shared")
    assert capsys.readouterr() == ("", "the network is shared\n")


def test_what_agents_print_does_not_reach_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with watching("job", quiet=True):
        sys.stdout.write("from an agent\n")
    assert capsys.readouterr() == ("", "from an agent\n")


def draw(drawing: Drawing, width: int, height: int) -> list[str]:
    """The drawing on a terminal of this size, without its colours."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=height)
    console.print(drawing)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


def drawing_of(n_running: int) -> Drawing:
    """A job of a thousand trials, three of them done."""
    drawing = Drawing(f"nightly {HOSTILE}", Console(file=io.StringIO()))
    drawing.job_planned(1000, 0)
    tell(drawing, RESULTS)
    drawing.job_planned(1000, 0)
    for number in range(n_running):
        drawing.trial_started(f"a-task-with-a-rather-long-name-{number}__x", "task", 1 + number % 2)
        drawing.phase_began(f"a-task-with-a-rather-long-name-{number}__x", "agent")
    return drawing


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 8), (20, 4)])
def test_sixty_four_running_trials_fit_any_terminal(width: int, height: int) -> None:
    lines = draw(drawing_of(64), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert "\x07" not in "".join(lines)


def test_a_drawing_shows_the_bar_the_mean_and_each_trial() -> None:
    lines = draw(drawing_of(2), 100, 24)
    assert "3/1000" in lines[0]
    assert r"nightly a\x1b[2Jb" in lines[0]
    assert re.search(r"(mean|x) 0\.\d{3}", lines[1])
    assert lines[2].startswith(
        "3 run = 2 scored + 1 missing (counted as 0); 2 errored (scored or not); 997 to go"
    )
    assert re.fullmatch(r" +a-task-with-a-rather-long-name-0__x +agent +\d\.\ds *", lines[3])
    assert "(attempt 2)" in lines[4]


def test_what_does_not_fit_is_counted_by_phase() -> None:
    trials = [RunningTrial(str(n), 1, float(n), "agent" if n % 3 else "verify") for n in range(9)]
    rows = render_running(trials, 3700.0, 4)
    assert rows[:3] == [
        ("0", "verify", "1h 01m"),
        ("1", "agent", "1h 01m"),
        ("2", "agent", "1h 01m"),
    ]
    assert rows[3] == ("… and 6 more", "4 agent, 2 verify", "")


def test_a_trial_that_waits_to_be_run_again_is_not_shown_as_running() -> None:
    progress = Progress(clock=lambda: 0.0)
    progress.start("one", 1)
    progress.retry("one")
    assert progress.running == {}


def test_the_time_left_is_estimated_from_the_trials_that_ended_in_this_run() -> None:
    now = [100.0]
    progress = Progress(clock=lambda: now[0], n_total=10, n_kept=4)
    results = [make_result(f"t__{number}", {"reward": 1}) for number in range(10)]
    said = []
    for number in range(4, 10):
        progress.start(results[number].trial_name, 1)
        now[0] += 60
        progress.end(results[number].trial_name, stats_of(*results[: number + 1]))
        said.append(render_left(progress))
    # One trial says little, and after the last nothing is left.
    assert said == [
        *("", "about 4m 00s left", "about 3m 00s left", "about 2m 00s left", "about 1m 00s left"),
        "",
    ]
    progress.n_total = 12
    assert render_ended(progress, "t__9", results[9]) == (
        "[10/12] t__9: reward 1, 12.3s; about 2m 00s left"
    )
    now[0] = 100.0
    assert render_left(progress) == ""


def test_a_drawing_with_the_time_left_fits_the_terminal() -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    drawing = Drawing("a job with a rather long name", console)
    drawing._progress.clock = lambda: now[0]
    drawing._progress.n_total = 89
    results = [make_result(f"t__{number}", {"reward": 1}) for number in range(3)]
    for number, result in enumerate(results, 1):
        drawing.trial_started(result.trial_name, "task", 1)
        now[0] += 60
        drawing.trial_ended(result.trial_name, result, stats_of(*results[:number]))
    with console.capture() as captured:
        console.print(drawing)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", captured.get())
    assert "3/89" in plain
    assert ", about 1h 26m left" in plain
    assert max(map(len, plain.splitlines())) <= 80
