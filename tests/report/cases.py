"""Case files to test with: honest ones, and pages that somebody edited."""

import base64
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proctor.digest import sha256_digest
from proctor.ledger.api import Ledger
from proctor.ledger.entry import TrialScore
from proctor.ledger.query import find_trial
from proctor.ledger.sealing import Submission
from proctor.report.case.document import parse_case
from proctor.report.case.making import make_case
from proctor.report.case.opened import open_case
from proctor.report.case.page import parse_page, render_page
from tests.ledger.ledgers import EXPERIMENT, record_bytes
from tests.ledger.trials import open_ledger

TRIAL = "trial-007"
LARGEST = 20_000_000
TRACE = "".join(
    json.dumps(row) + "\n"
    for row in (
        {"version": 1, "format": "aec-bench-trajectory"},
        {"role": "user", "step": 0, "content": "Make the tests pass."},
        {"role": "assistant", "step": 1, "content": "I look around."},
        {"role": "tool_call", "step": 1, "tool_name": "bash", "command": "ls /app"},
        {"role": "tool_result", "step": 1, "tool_name": "bash", "stdout": "a.py", "exit_code": 0},
        {"role": "assistant", "step": 2, "content": "Now the tests."},
        {"role": "tool_call", "step": 2, "tool_name": "bash", "command": "pytest"},
        {
            "role": "tool_result",
            "step": 2,
            "tool_name": "bash",
            "stdout": "1 failed",
            "exit_code": 1,
        },
    )
).encode()
FILES = {
    "agent/trajectory.jsonl": TRACE,
    "result.json": b'{"trial_name": "trial-007"}\n',
    "verifier/reward.txt": b"1\n",
    "verifier/test-stdout.txt": b"2 passed, 1 failed\n",
}
FINDING = {"code": "reward-seeded", "message": "a reward file was there before the verifier"}
SCORE = TrialScore(
    profile="harbor-0.13.1",
    certificate={
        "job": 0,
        "trial": TRIAL,
        "task": "task",
        "rewards": {"reward": "0x1.0000000000000p+0"},
        "basis": "reward file",
        "exception": None,
        "group": "agent__model__data",
    },
)

type Data = dict[str, Any]


def seal_case(
    directory: Path,
    files: dict[str, bytes] | None = None,
    score: TrialScore | None = SCORE,
    /,
    **changes: object,
) -> Ledger:
    """A ledger, open for writing, with a trial among others, its evidence and a review of it."""
    ledger = open_ledger(directory, "trial-001", "trial-002")
    root = directory / "trial"
    evidence = FILES if files is None else files
    for name, data in evidence.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    stated = {"evaluation.reward": 1.0, "evaluation.breakdown": {"reward": 1.0}, **changes}
    submission = Submission(
        record=record_bytes(TRIAL, **stated),
        where=TRIAL,
        root=root,
        evidence=tuple(evidence),
        findings=(FINDING,),
        score=score,
    )
    ledger.seal_all([submission])
    ledger.review(ledger.find(TRIAL), "pass", reviewer="ana", note="read it")
    return ledger


def page_of(ledger: Ledger, trial: str = TRIAL, *, largest: int = LARGEST) -> bytes:
    """The case file of a trial."""
    checkpoint = ledger.refresh()
    return make_case(
        ledger, find_trial(ledger, f"{EXPERIMENT}/{trial}"), checkpoint, largest=largest
    ).page


def make_page(directory: Path, *given: Any, **changes: object) -> bytes:
    """The case file of a new ledger's trial."""
    with seal_case(directory, *given, **changes) as ledger:
        return page_of(ledger)


def read_data(page: bytes) -> Data:
    """The data of a page, whatever it says."""
    data: Data = json.loads(parse_page(page, "page").data)
    return data


def edit(page: bytes, change: Callable[[Data], None]) -> bytes:
    """The page with other data, and everything around it as it was."""
    data = read_data(page)
    change(data)
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return page.replace(parse_page(page, "page").data.encode(), text.encode())


def redo(page: bytes, change: Callable[[Data], None]) -> bytes:
    """The page as proctor would have written it around other data: a careful forger's."""
    data = read_data(page)
    change(data)
    return render_page(open_case(parse_case(json.dumps(data), "page"), "page"))


def own_entry(data: Data) -> Data:
    """The trial's own entry among the data's."""
    return next(entry for entry in data["entries"] if entry["seq"] == data["trial"])


def change_line(old: str, new: str) -> Callable[[Data], None]:
    """An edit of the trial's line."""

    def change(data: Data) -> None:
        entry = own_entry(data)
        assert old in entry["line"]
        entry["line"] = entry["line"].replace(old, new, 1)

    return change


def digest_of(data: Data, path: str) -> str:
    """The digest that the trial's entry has for a file."""
    evidence = json.loads(own_entry(data)["line"])["evidence"]
    return str(next(file["sha256"] for file in evidence if file["path"] == path))


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def replace_file(path: str, new: bytes) -> Callable[[Data], None]:
    """An edit of the bytes of a file."""

    def change(data: Data) -> None:
        digest = digest_of(data, path)
        next(file for file in data["files"] if file["sha256"] == digest)["deflate"] = packed(new)

    return change


def drop_file(path: str, why: str | None = None) -> Callable[[Data], None]:
    """An edit that takes a file out, with or without a reason."""

    def change(data: Data) -> None:
        digest = digest_of(data, path)
        data["files"] = [file for file in data["files"] if file["sha256"] != digest]
        if why is not None:
            data["left_out"].append({"sha256": digest, "why": why})

    return change


def with_script(page: bytes, script: bytes) -> bytes:
    """The page with another script that its policy lets run."""
    own = parse_page(page, "page").script.encode()
    source = re.search(rb"script-src &#x27;(sha256-[^&]+)&#x27;", page)
    assert source
    digest = base64.b64encode(sha256_digest(script))
    return page.replace(own, script).replace(source[1], b"sha256-" + digest)
