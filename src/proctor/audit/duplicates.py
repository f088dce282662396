"""Keys that occur twice in one object of a JSON file.

Which of the two counts depends on the parser, so two honest readers of one file may see different
numbers. harbor itself writes one such key: `nan` in reward_stats, once for each trial.
"""

import json
from collections.abc import Iterable, Iterator

from proctor.audit.findings import Finding, Kind
from proctor.files import read_inside
from proctor.harbor.job import Job
from proctor.harbor.trial import FoundTrial, verifier_folder
from proctor.json_values import MOST_VALUES, check_values, has_more_values
from proctor.sentence import printable

_HARBORS_OWN = "nan"
_OF_A_JOB = ("result.json", "config.json", "lock.json")
_SHOWN = 80
MOST = 4 * MOST_VALUES
"""Most values of a file that is decoded to plain objects."""


def audit_duplicates(job: Job) -> Iterator[Finding]:
    """Find duplicate keys in the files of a job and the reward files of its trials."""
    for name in _OF_A_JOB:
        yield from _audit_file(job.directory, f"{job.directory}/{name}")
    for found in job.trials:
        for path in _find_reward_files(found):
            yield from _audit_file(found.directory, path)


def _find_reward_files(found: FoundTrial) -> Iterator[str]:
    yield f"{found.directory}/verifier/reward.json"
    for step in found.document.step_results or ():
        yield f"{found.directory}/{verifier_folder(step.step_name)}/reward.json"


def _audit_file(root: str, path: str) -> Iterator[Finding]:
    try:
        data = read_inside(root, path)
        if has_more_values(data, MOST):
            yield report_too_many(path)
            return
        _, twice = load_with_duplicates(data)
    except (OSError, ValueError, RecursionError):
        return  # reported by the reader of the file
    yield from report_duplicates(path, twice)


def report_too_many(path: str) -> Finding:
    """A finding that a file is too large to be searched."""
    message = f"more than {MOST:,} JSON values: it was not checked for duplicate keys"
    return Finding(Kind.NOT_RECOMPUTED, path, message)


def load_with_duplicates(data: bytes) -> tuple[object, list[str]]:
    """Parse a JSON document, and list the keys that occur twice in one object."""
    check_values(data, MOST)
    twice: list[str] = []

    def make(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice.extend(_find_twice(pairs))
        return made

    return json.loads(data, object_pairs_hook=make), twice


def _find_twice(pairs: Iterable[tuple[str, object]]) -> Iterator[str]:
    seen = set()
    for key, value in pairs:
        if key in seen and not (key == _HARBORS_OWN and isinstance(value, list)):
            yield key
        seen.add(key)


def report_duplicates(path: str, twice: Iterable[str]) -> Iterator[Finding]:
    """A finding for each duplicate key of a file."""
    for key in dict.fromkeys(twice):
        shown = printable(key[:_SHOWN])
        message = f"the key {shown!r} occurs twice in one object; parsers disagree which one counts"
        yield Finding(Kind.DUPLICATE_KEY, path, message, shown)
