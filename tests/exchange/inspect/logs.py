"""Small logs made by hand, as Inspect would write them or as nobody would."""

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from backports import zstd

from proctor.exchange.inspect.trial import FoundLogs, InspectOptions, find_samples
from proctor.ledger.sealing import Submission, check_submission

EVAL: dict[str, Any] = {
    "eval_id": "Ev1",
    "run_id": "Run1",
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


def write_archive(path: Path, *samples: Any, header: Any = HEADER, method: int = 8) -> Path:
    """An .eval file; samples that are bytes are written as they are."""
    members = {"header.json": _bytes(header)} if header is not None else {}
    for number, sample in enumerate(samples):
        name = f"{sample.get('id')}_epoch_{sample.get('epoch')}" if isinstance(sample, dict) else ""
        name = name if name.isascii() and name.isprintable() else ""
        members[f"samples/{name or number}.json"] = _bytes(sample)
    return write_members(path, members, method)


def write_members(path: Path, members: dict[str, bytes], method: int = 8) -> Path:
    """A zip archive; of method 93, which zipfile does not write before Python 3.14."""
    if method != 93:
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return path
    packed = {name: zstd.compress(data) for name, data in members.items()}
    with zipfile.ZipFile(path, "w", 0) as archive:
        for name, data in packed.items():
            archive.writestr(name, data)
        for info in archive.infolist():
            plain = members[info.filename]
            info.compress_type, info.file_size, info.CRC = 93, len(plain), zlib.crc32(plain)
    return path


def write_document(path: Path, *samples: Any, header: Any = HEADER) -> Path:
    """A log in the JSON form, with NaN where Python has it."""
    path.write_text(json.dumps({**header, "samples": list(samples)}), encoding="utf-8")
    return path


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def find(*paths: Path, **options: Any) -> FoundLogs:
    """The samples in logs."""
    return find_samples(paths, InspectOptions(**options))


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
