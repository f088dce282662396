"""An import that is killed in the middle, or may not read everything: the rest comes in."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.ledger.verification.verify import verify_ledger
from tests.audit.directories import COPIED, read_json, write_json
from tests.cli.programs import command_line, environment, run_child
from tests.ordinary_user import give, ordinary_home, run_as_ordinary_user

REAL = COPIED / "04-binary-scripted-k5"


def make_large(into: Path, trials: int) -> Path:
    """A job of so many trials, each under a name of its own."""
    job = into / "large"
    job.mkdir()
    shutil.copy(REAL / "lock.json", job)
    write_json(job / "result.json", read_json(REAL / "result.json") | {"n_total_trials": trials})
    real = sorted(path for path in REAL.iterdir() if path.is_dir())
    for number in range(trials):
        trial = job / f"{real[number % len(real)].name}-{number:04}"
        shutil.copytree(real[number % len(real)], trial)
        write_json(
            trial / "result.json", read_json(trial / "result.json") | {"trial_name": trial.name}
        )
    return job


def size_of(ledger: Path) -> int:
    """Entries that are signed so far."""
    try:
        return int((ledger / "checkpoint").read_text().splitlines()[1])
    except (OSError, IndexError):
        return 0


def kill_and_go_on(tmp_path: Path, trials: int, sizes: list[int]) -> None:
    job, ledger = make_large(tmp_path, trials), tmp_path / "ledger"
    words = ("import", "harbor", job, "--ledger", ledger, "--json")
    for size in sizes:
        child = subprocess.Popen(command_line(*words), env=environment(), stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while size_of(ledger) <= size and child.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert size_of(ledger) > size
        assert verify_ledger(ledger).is_sound
    before = size_of(ledger) - 1
    ran = run_child(*words)
    assert ran.code == 0, ran.err
    facts = json.loads(ran.out)
    assert (facts["found"], len(facts["already_there"])) == (trials, before)
    assert len(facts["imported"]) == trials - before
    assert size_of(ledger) == trials + 1
    assert verify_ledger(ledger).is_sound


def test_a_killed_import_goes_on_where_it_was(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, 220, [1])


@pytest.mark.soak
def test_an_import_that_is_killed_again_and_again_is_whole_in_the_end(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, 1500, [1, 101, 301, 401, 701, 901])


def test_what_nobody_may_read_is_refused_and_the_rest_comes_in() -> None:
    with ordinary_home() as home:
        job = Path(shutil.copytree(REAL, home / "job"))
        closed, torn, shut, *_ = sorted(path for path in job.iterdir() if path.is_dir())
        give(*job.rglob("*"), job)
        for path in (closed, torn / "result.json", shut / "agent"):
            path.chmod(0)
        into = ("--ledger", home / "ledger", "--json")
        words = (sys.executable, "-m", "proctor", "import")
        ran = run_as_ordinary_user(*words, "harbor", job, *into, home=home)
        assert (ran.code, ran.err.count("Traceback")) == (3, 0), ran.err
        assert [len(json.loads(ran.out)[key]) for key in ("imported", "refused")] == [12, 3]
        ran = run_as_ordinary_user(*words, "traces", job, *into, home=home)
        assert (ran.code, ran.err.count("Traceback")) == (3, 0), ran.err
        refused = json.loads(ran.out)["refused"]
        assert [each["message"].partition(": ")[0] for each in refused] == [
            str(torn / "result.json"),
            str(closed),
            str(shut / "agent"),
        ]
        assert all("cannot be read" in each["message"] for each in refused)
