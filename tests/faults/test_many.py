"""Many trials at once on a small machine: all of them end, and the runner does not grow."""

from dataclasses import dataclass

import pytest

from tests.faults.memory import n_open_files, peak_mib
from tests.faults.site import Site, wait_until

AGENT = ("--command", "echo words > /logs/agent/words.txt; sleep 0.1")


@dataclass(slots=True)
class Sample:
    """A runner at one moment."""

    n_ended: int
    peak: float
    n_files: int


def run_many(site: Site, *, n_trials: int, n_at_once: int) -> list[Sample]:
    """Run trials and look at the runner all the while."""
    task = site.make_task("t")
    words = ("-p", task, *AGENT, "-k", n_trials, "-n", n_at_once, "-q")
    samples: list[Sample] = []
    with site.begun(*words) as runner:

        def look() -> bool:
            n_ended = sum(1 for _ in site.job.glob("*/result.json"))
            samples.append(Sample(n_ended, peak_mib(runner.pid), n_open_files(runner.pid)))
            return runner.poll() is not None

        wait_until(look)
    assert runner.returncode == 0
    assert site.rewards() == [1.0] * n_trials
    site.check_nothing_left()
    return [sample for sample in samples if sample.peak]


def growth(samples: list[Sample], n_ended: int) -> float:
    """By how much the runner's memory grew after so many trials had ended, in MiB."""
    early = next(sample.peak for sample in samples if sample.n_ended >= n_ended)
    return max(sample.peak for sample in samples) - early


def test_48_trials_by_16_at_once_end(site: Site) -> None:
    samples = run_many(site, n_trials=48, n_at_once=16)
    assert growth(samples, 24) < 24
    assert max(sample.n_files for sample in samples) < 40 + 16 * 12


@pytest.mark.soak
def test_200_trials_by_64_at_once_end_in_the_same_memory(site: Site) -> None:
    samples = run_many(site, n_trials=200, n_at_once=64)
    assert growth(samples, 50) < 24
    # The last trials hold no more files than the first ones did.
    early = max(sample.n_files for sample in samples if sample.n_ended < 50)
    late = min(sample.n_files for sample in samples if sample.n_ended >= 150)
    assert late <= early
    assert samples[-1].n_files < 40
