"""A job's result.json as it was published: every name and number as it is written."""

import json
from collections.abc import Iterator

from proctor.errors import JobError
from proctor.harbor.documents import JOB, JobDocument
from proctor.json_values import MOST_VALUES, check_values


class PublishedResult:
    """What a job says of itself."""

    __slots__ = ("document", "evals", "stats")

    def __init__(self, document: JobDocument, path: str) -> None:
        self.document = document
        self.stats = parse_stats(bytes(document.stats), path)
        """`stats` as plain values; keys that occur twice have their lists joined."""
        evals = self.stats.get("evals")
        items = evals.items() if isinstance(evals, dict) else ()
        self.evals = {key: entry for key, entry in items if isinstance(entry, dict)}
        """The groups that have the shape of groups."""

    @property
    def finished(self) -> bool:
        """Whether the job ran to its end; a killed job leaves a file that looks like any other."""
        return self.document.finished_at is not None

    def count(self, name: str) -> int:
        """A counter of `stats`; 0 when it is missing or no whole number."""
        value = self.stats.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def metrics(self, key: str) -> list[dict[str, object]]:
        """The metric entries of a group."""
        entries = self.evals.get(key, {}).get("metrics")
        return (
            [entry for entry in entries if isinstance(entry, dict)]
            if isinstance(entries, list)
            else []
        )

    def chains(self) -> Iterator[list[str]]:
        """Lists of trial names, each in the order in which the trials were added up."""
        for entry in self.evals.values():
            rewards = entry.get("reward_stats")
            tables = list(rewards.values()) if isinstance(rewards, dict) else []
            for table in [*tables, entry.get("exception_stats")]:
                if isinstance(table, dict):
                    lists = [_names(value) for value in table.values()]
                    yield from lists
                    # Values and exceptions are listed as they first occurred.
                    yield [names[0] for names in lists if names]

    def names(self) -> set[str]:
        """Every trial that is mentioned."""
        return {name for chain in self.chains() for name in chain}


def load_published(path: str) -> PublishedResult:
    """The job result at path.

    Raises:
        JobError: unreadable, torn, or not a job's result.
    """
    return PublishedResult(JOB.load(path), path)


def parse_stats(data: bytes, path: str) -> dict[str, object]:
    """`stats` as plain values, with joined lists where a key occurs twice, as several nan do."""
    try:
        check_values(data, 4 * MOST_VALUES)
        stats = json.loads(data, object_pairs_hook=_join_pairs)
    except (ValueError, RecursionError) as error:
        raise JobError(f"{path}: stats is torn or not JSON: {error}") from error
    if not isinstance(stats, dict):
        raise JobError(f"{path}: stats is a JSON {type(stats).__name__}; expected an object")
    return stats


def _join_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    joined: dict[str, object] = {}
    for key, value in pairs:
        earlier = joined.get(key)
        if isinstance(earlier, list) and isinstance(value, list):
            earlier.extend(value)
        else:
            joined[key] = value
    return joined


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
