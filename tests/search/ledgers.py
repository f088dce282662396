"""Ledgers to search in."""

import json
from collections.abc import Mapping
from pathlib import Path

from proctor.ledger.api import Ledger
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.trial_index import TrialFilter
from proctor.search.find import Found, Page, find_hits
from proctor.search.query import parse_query
from proctor.search.upkeep import ask_index
from tests.ledger.trials import open_ledger, seal_files

TRACE = "agent/trajectory.jsonl"

type Step = Mapping[str, object]


def said(text: str, step: int = 1, **more: object) -> Step:
    """What the assistant said."""
    return {"role": "assistant", "step": step, "content": text, **more}


def ran(command: str, step: int = 1, tool: str = "bash") -> Step:
    """A call of a shell."""
    return {"role": "tool_call", "step": step, "tool_name": tool, "command": command}


def gave(text: str, code: int | None, step: int = 1, tool: str | None = "bash") -> Step:
    """What came of it."""
    return {
        "role": "tool_result",
        "step": step,
        "tool_name": tool,
        "stdout": text,
        "exit_code": code,
    }


def lines(*steps: Step) -> bytes:
    """A trajectory's file."""
    return "".join(f"{json.dumps(step)}\n" for step in steps).encode()


def seal_trace(ledger: Ledger, trial: str, *steps: Step, **changes: object) -> None:
    """Seal a trial that has this trajectory."""
    seal_files(ledger, trial, {TRACE: lines(*steps)}, **changes)


def make_searched(directory: Path) -> Path:
    """A ledger with two trials that installed something, and one that did not."""
    with open_ledger(directory) as ledger:
        seal_trace(
            ledger, "failed",
            said("I install a compiler for C++."),
            ran("sudo apt-get install -y g++"),
            gave("E: Unable to locate package g++", 100),
            ran("cat /etc/passwd foo_bar.py", 2),
            gave("root:x:0:0", 0, 2),
        )  # fmt: skip
        changes = {"agent.model": "openai/gpt-5", "task.task_id": "org/fix-git"}
        seal_trace(ledger, "worked", ran("apt-get update"), gave("Hit: 1", 0), **changes)
        seal_trace(ledger, "idle", said("Nothing to do; the c compiler is there."))
    return directory / "ledger"


def ask(directory: Path, query: str, page: Page | None = None) -> Found:
    """What a query finds."""
    with OpenLedger.open(directory) as ledger:
        return ask_index(
            ledger,
            lambda index: find_hits(
                ledger, index, parse_query(query), TrialFilter(), page or Page()
            ),
        )


def anchors(found: Found) -> list[str]:
    """Where the hits are: TRIAL#STEP ROLE."""
    return [f"{hit.trial_id}#{hit.row.step} {hit.row.role}" for hit in found.hits]
