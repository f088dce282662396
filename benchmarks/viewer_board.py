"""A board of a ledger of 100,000 records, beside decoding their rows once, in processor time.

The records are those of 25 agents and models at 100 tasks, 40 attempts each, with rewards between
0 and 1, costs and findings; some were reviewed, and some stand in for others.
"""

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.bench import Bench, check_same, cpu_seconds, entry_point, run_python
from benchmarks.row import Row, share_of
from benchmarks.sizes import name_of_size
from proctor.ledger.entry import AnyEntry, TrialEntry, TrialScore
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.review import append_review, append_supersession
from proctor.ledger.trial_index import TrialFilter

DATASET = "bench@1"
_RECORDS = 100_000
_TASKS = 100
_AGENTS = 25
_BATCH = 1000
_REWARDS = (0.0, 0.0, 0.25, 0.5, 1.0, 1.0, None)


def board_rows(bench: Bench, *, records: int = _RECORDS) -> Iterator[Row]:
    """The board as text."""
    directory = load_board_ledger(bench, records)
    words = ("board", "--dataset", DATASET, "--ledger", str(directory))
    command = entry_point("proctor.cli.main", "main", *words)
    # Once unmeasured: the first command may have to make the index.
    run_python(command)
    floor = entry_point("benchmarks.floor_board", "main", str(directory), DATASET)
    check_same("records of the dataset", int(run_python(floor)), records)
    figures = bench.least(lambda: cpu_seconds(command), lambda: cpu_seconds(floor))
    name = f"board-{name_of_size(records)}"
    yield share_of(name, figures, "every row decoded once", at_most=4)


def load_board_ledger(bench: Bench, records: int) -> Path:
    """A ledger of so many records of one dataset; it is kept from run to run."""

    def fill(directory: Path) -> None:
        draw, tasks = random.Random(records), max(min(_TASKS, records // _AGENTS // 2), 1)
        with OpenLedger.create(directory, make_key(directory / "key", "bench"), "bench") as ledger:
            for batch in itertools.batched(range(records), _BATCH):
                with ledger.writing():
                    drafts: list[AnyEntry] = [make_board_entry(n, tasks, draw) for n in batch]
                    ledger.append(drafts)
            ledger.refresh()
            _remark(ledger)
            ledger.refresh()

    return bench.kept(f"board-1-{records}", fill)


def _remark(ledger: OpenLedger) -> None:
    wanted = TrialFilter(experiment="experiment-007", task="task-00", limit=10)
    first, second, *others = list_trials(ledger, wanted)
    for row in others:
        append_review(ledger, row, "pass", reviewer="ana")
    append_supersession(ledger, first, second, "infrastructure", reason="no disk", author="ana")


def make_board_entry(number: int, tasks: int, draw: random.Random) -> TrialEntry:
    """A trial of the dataset."""
    agent, task = number % _AGENTS, number // _AGENTS % tasks
    reward = draw.choice(_REWARDS)
    record = {
        "trial_id": f"trial-{number:07}",
        "experiment_id": f"experiment-{agent:03}",
        "dataset_id": DATASET,
        "timestamp": "2026-11-15T10:00:00Z",
        "task": {"task_id": f"task-{task:02}", "task_revision": f"{task:064}"},
        "agent": {
            "adapter": f"agent-{agent % 5}",
            "model": f"provider/model-{agent // 5}",
            "adapter_revision": "1.0",
            "configuration": {"limits": {"agent_sec": 900.0, "cpus": 2}},
        },
        "environment": {
            "runtime_image": f"registry/task-{task}@sha256:{task:064}",
            "compute_backend": "docker",
        },
        "inputs": {"instruction": f"{number} " + "x" * 300},
        "evaluation": {"reward": reward},
        "timing": {"total_seconds": 60.0 + task},
        "cost": {"tokens_in": 10_000, "tokens_out": 500, "estimated_cost_usd": 0.01 * (task + 1)},
        "completeness": "complete",
    }
    return TrialEntry(
        at="",
        seq=0,
        record=msgspec.Raw(json.dumps(record).encode()),
        score=TrialScore(profile="harbor-0.13.1"),
        reason_code="harbor_reward_missing" if reward is None else None,
    )
