"""Small logs made by hand, as Inspect would write them or as nobody would."""

import atexit
import json
import subprocess
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from proctor.exchange.inspect import reading
from proctor.exchange.inspect.reading import LogReader
from proctor.exchange.inspect.trial import FoundLogs, InspectOptions, find_samples
from proctor.ledger.sealing import Submission, check_submission

EVAL: dict[str, Any] = {
    "eval_id": "Ev1",
    "run_id": "Run1",
    "task_id": "Task1",
    "created": "2026-03-01T10:00:00+00:00",
    "task": "arithmetic",
    "task_version": 2,
    "model": "acme/model-x",
    "dataset": {"name": "sums", "samples": 1},
    "config": {"message_limit": 30},
    "packages": {"inspect_ai": "0.3.1"},
    "scorers": [{"name": "exact"}],
}
HEADER: dict[str, Any] = {
    "version": 2,
    "status": "success",
    "eval": EVAL,
    "plan": {"steps": [{"solver": "react"}]},
}


def make_sample(number: object = 1, /, epoch: object = 1, **changes: Any) -> dict[str, Any]:
    """A sample with a score, a tool call and times."""
    return {
        "id": number,
        "epoch": epoch,
        "input": "Add 1 and 2.",
        "target": "3",
        "messages": [
            {"id": "a", "role": "system", "content": "Be brief."},
            {"id": "b", "role": "user", "content": "Add 1 and 2."},
            {
                "id": "c",
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "reasoning": "I need a tool."},
                    {"type": "text", "text": "I add."},
                ],
                "tool_calls": [
                    {"id": "t1", "function": "bash", "arguments": {"cmd": "expr 1 + 2"}}
                ],
            },
            {"id": "d", "role": "tool", "content": "3", "tool_call_id": "t1", "function": "bash"},
            {"id": "e", "role": "assistant", "content": "3"},
        ],
        "scores": {"exact": {"value": "C"}},
        "started_at": "2026-03-01T10:00:00+00:00",
        "completed_at": "2026-03-01T10:00:08+00:00",
        "total_time": 8.0,
        **changes,
    }


def write_archive(path: Path, *samples: Any, header: Any = HEADER) -> Path:
    """An .eval file; samples that are bytes are written as they are."""
    members = {"header.json": _bytes(header)} if header is not None else {}
    given = [sample if isinstance(sample, dict) else {} for sample in samples]
    summaries = [
        {"id": sample.get("id", number), "epoch": sample.get("epoch", 1), "input": "", "target": ""}
        for number, sample in enumerate(given)
    ]
    members["summaries.json"] = _bytes(summaries)
    for summary, sample in zip(summaries, samples, strict=True):
        members[f"samples/{summary['id']}_epoch_{summary['epoch']}.json"] = _bytes(sample)
    return write_members(path, members)


def write_members(path: Path, members: dict[str, bytes]) -> Path:
    """A zip archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def write_document(path: Path, *samples: Any, header: Any = HEADER) -> Path:
    """A log in the JSON form, with NaN where Python has it."""
    path.write_text(json.dumps({**header, "samples": list(samples)}), encoding="utf-8")
    return path


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@cache
def _start_once() -> subprocess.Popen[bytes]:
    process = reading._start()
    atexit.register(reading._stop, process)
    return process


def share_process(patch: pytest.MonkeyPatch) -> None:
    """Let all readers ask one process: inspect_ai takes seconds to start."""
    found = _start_once()
    patch.setattr(reading, "_start", lambda: found)
    patch.setattr(reading, "_stop", lambda _: 0)


def find(*paths: Path, **options: Any) -> FoundLogs:
    """The samples in logs."""
    return find_samples(paths, InspectOptions(**options), LogReader())


def submit(path: Path, **options: Any) -> list[Submission]:
    """The trials of a log, each of which can be sealed."""
    found = [offer.submit() for offer in find(path, **options).offers]
    for each in found:
        check_submission(each)
    return found


def record_of(submission: Submission) -> dict[str, Any]:
    """The record of a trial."""
    record: dict[str, Any] = json.loads(submission.record)
    return record


def entries_of(submission: Submission) -> list[dict[str, Any]]:
    """The entries of a trial's trace, without the header."""
    lines = submission.attached["trajectory.jsonl"].splitlines()
    return [json.loads(line) for line in lines[1:]]
