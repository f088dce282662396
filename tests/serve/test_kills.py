"""Kill -9 of the server and of machines at random points: each trial is sealed exactly once."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.ledger.verification.verify import verify_ledger
from tests.serve.servers import Machine, ServedLedger, serving

pytestmark = pytest.mark.process


def begin(machine: Machine, trials: list[str], evidence: Path) -> subprocess.Popen[str]:
    """A process that seals trials one after the other, each as often as it takes."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.serve.submitter", machine.url, str(evidence), *trials],
        env={**os.environ, **machine.env},
        text=True,
    )


def check_kills(top: Path, n_kills: int, seed: int) -> None:
    """Two machines seal trials, while one of them or the server is killed again and again."""
    chance = random.Random(seed)
    evidence = top / "evidence"
    evidence.mkdir()
    (evidence / "shared.txt").write_text("shared\n" * 1000)
    with serving(top, is_encrypted=False) as served:
        machines = [served.machine(), served.machine()]
        plans = [[f"m{number}-{n:03}" for n in range(4 * n_kills)] for number in range(2)]
        running = [begin(*each, evidence) for each in zip(machines, plans, strict=True)]
        for _ in range(n_kills):
            time.sleep(chance.uniform(0.1, 1.2))
            victim = chance.randrange(3)
            if victim == 2:
                served.stop(signal.SIGKILL)
                time.sleep(chance.uniform(0, 0.5))
                served.start()
            else:
                running[victim].kill()
                running[victim].wait()
                running[victim] = begin(machines[victim], plans[victim], evidence)
        for process in running:
            assert process.wait(timeout=240) == 0
        _check(served, machines, plans)


def _check(served: ServedLedger, machines: list[Machine], plans: list[list[str]]) -> None:
    for machine in machines:
        machine.proctor("ledger", "seal", "--ledger", machine.url)
    sealed = served.trials()
    assert sorted(sealed) == sorted(plans[0] + plans[1])
    assert verify_ledger(served.directory).damage == []
    for machine in machines:
        with machine.using():
            assert verify_ledger(machine.fetch()).damage == []


def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 10, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_many_kills_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, 50, seed)
