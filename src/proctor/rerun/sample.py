"""Which trials are run again: the same for the same names and seed on every machine.

A trial's rank is the SHA-256 of `SEED`, a line end and the trial's name, as UTF-8. The sample is
the trials of the lowest ranks, in that order. A trial more or less in the job changes nothing about
the order of the others.
"""

from collections.abc import Iterable

from proctor.digest import sha256_hex


def choose_trials(names: Iterable[str], n: int, seed: str) -> list[str]:
    """The names of `n` trials, or of all where there are fewer."""
    return sorted(set(names), key=lambda name: _rank(seed, name))[:n]


def _rank(seed: str, name: str) -> str:
    return sha256_hex(f"{seed}\n{name}".encode(errors="surrogateescape"))
