"""A job of many sandboxes that is stopped by a signal, and one that is wanted twice at once.

As root and as an ordinary user; with a hundred trials in `make soak`.
"""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.programs import Ran
from tests.faults.site import PATIENCE_SEC, Site, file_bytes, interrupt, load, wait_until
from tests.ordinary_user import command_line, ordinary_home

N_TASKS = 10
FEW, MANY = 3, 10
"""Attempts at each task: here, and in the long version."""
N_BEFORE = 8
"""Trials that have a result when the signal comes."""
WORDS = ("-n", 8, "--command", "echo words > /logs/agent/words.txt")


@pytest.fixture(params=["root", "ordinary user"])
def place(request: pytest.FixtureRequest, site: Site) -> Iterator[Site]:
    """Where commands are run by one or the other."""
    if request.param == "root":
        yield site
        return
    with ordinary_home() as home:
        site.top = home
        site.program = command_line()
        site.env = {
            "HOME": str(home),
            "TMPDIR": str(home),
            "PROCTOR_LEDGER": str(home / "ledger"),
            "XDG_CONFIG_HOME": str(home / "config"),
        }
        yield site


def words_of(site: Site, attempts: int) -> tuple[object, ...]:
    return ("-p", site.make_tasks(N_TASKS), "-k", attempts, *WORDS)


def results(site: Site) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in site.job.glob("*/result.json")}


def stop(site: Site, attempts: int, *numbers: signal.Signals) -> Ran:
    """Run the job, and send it signals when some trials are done and others run."""
    with site.begun(*words_of(site, attempts)) as runner:
        wait_until(lambda: len(results(site)) >= N_BEFORE, runner)
        for number in numbers[:-1]:
            runner.send_signal(number)
            # Two at the same moment would be one.
            assert runner.stderr is not None
            assert any(line.startswith("stopping: ") for line in runner.stderr)
        return interrupt(runner, numbers[-1])


ONCE, ENDED, TWICE = (signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)


@pytest.mark.parametrize(
    ("place", "numbers", "attempts"),
    [
        # What root's do otherwise is done by the third, and by the ordinary user's.
        pytest.param("root", ONCE, MANY, id="root-ctrl-c", marks=pytest.mark.soak),
        pytest.param("root", ENDED, MANY, id="root-sigterm", marks=pytest.mark.soak),
        pytest.param("root", TWICE, FEW, id="root-ctrl-c twice"),
        pytest.param("root", TWICE, MANY, id="root-many-twice", marks=pytest.mark.soak),
        pytest.param("ordinary user", ONCE, FEW, id="ordinary user-ctrl-c"),
        pytest.param("ordinary user", ONCE, MANY, id="ordinary user-many", marks=pytest.mark.soak),
        # What an ordinary user's stop does otherwise is done by the ones above.
        pytest.param("ordinary user", ENDED, MANY, id="user-sigterm", marks=pytest.mark.soak),
        pytest.param("ordinary user", TWICE, MANY, id="user-twice", marks=pytest.mark.soak),
    ],
    indirect=["place"],
)
def test_a_stopped_job_of_many_trials_is_ended_by_resume(
    place: Site, numbers: tuple[signal.Signals, ...], attempts: int
) -> None:
    ran = stop(place, attempts, *numbers)
    assert (ran.code, "Traceback" in ran.err) == (130, False), ran.err
    place.check_nothing_runs()
    if len(numbers) == 1:
        place.check_nothing_left()
    before, begun = results(place), [path for path in place.trials() if path.exists()]
    files = {trial: file_bytes(trial) for trial in begun}
    resumed = place.resume()
    assert resumed.code == 0, resumed.err
    place.check_nothing_left()
    assert place.rewards() == [1.0] * N_TASKS * attempts
    check_none_lost(place, before, files, N_TASKS * attempts)
    check_in_order(place, N_TASKS * attempts)


def check_none_lost(
    site: Site, before: dict[Path, bytes], files: dict[Path, dict[str, bytes]], n_trials: int
) -> None:
    """What had a reward is as it was; what had none is an attempt with all that it had written."""
    for trial, there in files.items():
        data = before.get(trial / "result.json")
        if data is not None and b'"exception_type": "CancelledError"' not in data:
            assert file_bytes(trial) == there
            continue
        kept = file_bytes(trial / "attempts" / "1")
        # The record has got the name of the attempt; evidence of a killed sandbox came later.
        lost = {name for name in there if name != "record.json" and kept.get(name) != there[name]}
        assert not lost, trial
    n_kept = len(list(site.job.glob("*/attempts/*")))
    assert n_kept <= len(files) < n_trials


def check_in_order(site: Site, n_trials: int) -> None:
    audited = site.proctor("audit", site.job)
    assert audited.code == 0, audited.out + audited.err
    assert "the published numbers follow" in audited.out
    cleaned = site.proctor("clean", "--dry-run")
    assert str(site.top / "cache" / "scratch") not in cleaned.out
    stats = load(site.job / "result.json")["stats"]
    assert (stats["n_completed_trials"], stats["n_cancelled_trials"]) == (n_trials, 0)


@pytest.mark.parametrize(
    ("place", "attempts"),
    [
        pytest.param("root", FEW),
        pytest.param("root", MANY, marks=pytest.mark.soak),
        pytest.param("ordinary user", MANY, marks=pytest.mark.soak),
    ],
    indirect=["place"],
)
def test_of_two_that_resume_a_job_at_once_one_does_it(place: Site, attempts: int) -> None:
    assert stop(place, attempts, signal.SIGINT).code == 130
    with ExitStack() as stack:
        runners = [stack.enter_context(place.resuming()) for _ in range(2)]
        check_one_does_it(place, runners, N_TASKS * attempts)


@pytest.mark.soak
def test_of_two_that_run_a_job_of_one_name_at_once_one_does_it(place: Site) -> None:
    words = words_of(place, MANY)
    with ExitStack() as stack:
        runners = [stack.enter_context(place.begun(*words)) for _ in range(2)]
        check_one_does_it(place, runners, N_TASKS * MANY)
    assert not list(place.job.glob("*/attempts"))


def check_one_does_it(site: Site, runners: list[subprocess.Popen[str]], n_trials: int) -> None:
    ended = []
    for runner in runners:
        out, err = runner.communicate(timeout=PATIENCE_SEC)
        ended.append(Ran(runner.returncode, out, err))
    done, refused = sorted(ended, key=lambda ran: ran.code)
    assert done.code == 0, ended
    if refused.code == 0:
        # It came when the other had done it all.
        assert f"kept from before: {n_trials} trials" in refused.out
    else:
        assert refused.code == 2
        assert "is running this job; wait for it, stop it, or give" in refused.err
    assert site.rewards() == [1.0] * n_trials
    directories = {path for path in site.job.iterdir() if path.is_dir()}
    assert directories == set(site.trials())
    site.check_nothing_left()
    check_in_order(site, n_trials)
