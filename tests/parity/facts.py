"""What must be equal between two runs of the same trials, whoever ran them.

Names, ids, times, paths and tracebacks differ from run to run and are left out or made alike.
"""

import json
import re
from pathlib import Path
from typing import Any

type Facts = dict[str, Any]

DATA = Path(__file__).resolve().parent.parent / "data" / "harbor"
TASKS = DATA / "tasks"
JOBS = DATA / "jobs"
"""Real jobs, as harbor left them."""

_SUFFIX = re.compile(r"__[23456789A-HJ-NP-Za-km-z]{7}(?![0-9A-Za-z])")
_PHASES = ("environment_setup", "agent_setup", "agent_execution", "verifier")

_OF_THE_ENVIRONMENT = "build-fail"
"""How a failed build is told is the environment's own matter; that it failed is not."""


def load_facts(job: Path) -> dict[str, list[Facts]]:
    """The facts of every trial of a job, by agent and task, in a fixed order."""
    facts: dict[str, list[Facts]] = {}
    for path in sorted(job.glob("*/result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        key = f"{result['agent_info']['name']} at {result['source']}/{result['task_name']}"
        facts.setdefault(key, []).append(_facts(result))
    return {key: sorted(each, key=_text) for key, each in facts.items()}


def load_groups(job: Path) -> Facts:
    """The statistics of a job's groups, with task names in place of trial names."""
    stats = json.loads((job / "result.json").read_text(encoding="utf-8"))["stats"]
    for group in stats["evals"].values():
        for table in (*group["reward_stats"].values(), group["exception_stats"]):
            for value, trials in table.items():
                table[value] = sorted(_SUFFIX.sub("", trial) for trial in trials)
    # What a mean over steps is keyed by stands in set order in harbor.
    return json.loads(json.dumps(stats, sort_keys=True))  # type: ignore[no-any-return]


def _facts(result: Facts) -> Facts:
    return {
        "task": result["task_name"],
        "source": result["source"],
        "checksum": result["task_checksum"],
        "agent": result["agent_info"],
        "usage": _usage(result["agent_result"]),
        "verifier": result["verifier_result"],
        "exception": _exception(result["exception_info"], result["task_name"]),
        "phases": [phase for phase in _PHASES if result[phase] is not None],
        "steps": [_step(step) for step in result["step_results"] or ()],
    }


def _step(step: Facts) -> Facts:
    return {
        "name": step["step_name"],
        "usage": step["agent_result"],
        "verifier": step["verifier_result"],
        "exception": _exception(step["exception_info"], step["step_name"]),
        "phases": [phase for phase in ("agent_execution", "verifier") if step[phase] is not None],
    }


def _usage(usage: Facts | None) -> Facts | None:
    """What the agent told, without which of several trials at once came first."""
    if usage and usage["metadata"]:
        usage["metadata"].pop("attempt_index", None)
    return usage


def _exception(info: Facts | None, task: str) -> tuple[str, str] | None:
    if info is None:
        return None
    message = "" if task == _OF_THE_ENVIRONMENT else info["exception_message"]
    return (info["exception_type"], _plain(message))


def _plain(message: str) -> str:
    """A message without what the place and the run put into it."""
    message = _SUFFIX.sub("", message)
    return re.sub(r"[^\s:]*/(?=(?:tasks|jobs|trials)/|[\w-]+/verifier/)", "", message)


def _text(facts: Facts) -> str:
    return json.dumps(facts, sort_keys=True)
