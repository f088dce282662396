"""What verifiers printed against what they gave: failed tests beside a full reward are noted.

Only the summaries that common test runners print are known. A task may well run tests that are
meant to fail, so that this is worth a look and changes no number.
"""

import contextlib
import os
import re
from collections.abc import Iterator

from proctor.audit.findings import Finding, Kind
from proctor.files import find_way_out, open_plain
from proctor.harbor.job import Job
from proctor.harbor.trial import FoundTrial, verifier_folder
from proctor.sentence import printable

_FULL = 1.0
_LONGEST = 1 << 20
"""Bytes at the end of an output that are looked at: summaries stand there."""
_SHOWN = 120
_NAMES = ("test-stdout.txt", "test-stderr.txt")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_FAILED = re.compile(
    rb"^(?:FAILED\b|=+ .*\b[1-9][0-9]* (?:failed|errors?)\b|--- FAIL: |FAIL\t|test result: FAILED)"
    rb"[^\r\n]*",
    re.MULTILINE,
)
"""pytest and unittest, pytest's last line, Go twice, Rust."""


def audit_outputs(job: Job) -> Iterator[Finding]:
    """Notes about trials whose tests failed by their own account."""
    for found in job.trials:
        if _is_full(found):
            yield from _audit_output(found)


def _is_full(found: FoundTrial) -> bool:
    rewards = found.trial.verdict.rewards if found.trial.verdict else None
    return bool(rewards) and all(value >= _FULL for value in (rewards or {}).values())


def _audit_output(found: FoundTrial) -> Iterator[Finding]:
    steps = found.document.step_results or ()
    folders = ["verifier", *(verifier_folder(step.step_name) for step in steps)]
    for path in [f"{found.directory}/{folder}/{name}" for folder in folders for name in _NAMES]:
        failed = _FAILED.search(_COLOUR.sub(b"", _read_end(found.directory, path)))
        if failed is not None:
            line = printable(failed[0].decode("utf-8", "replace")[:_SHOWN])
            message = f"{found.trial.name} has a full reward, and its tests printed: {line}"
            yield Finding(Kind.FAILED_OUTPUT, path, message)
            return


def _read_end(trial: str, path: str) -> bytes:
    with contextlib.suppress(OSError, ValueError):
        if find_way_out(trial, path) is None:
            with open_plain(path) as file:
                file.seek(max(os.fstat(file.fileno()).st_size - _LONGEST, 0))
                return file.read(_LONGEST)
    return b""
