"""Choose the trials to run again: the same for the same names and seed on every machine.

A trial's rank is the SHA-256 of `SEED`, a newline and the trial's name, as UTF-8. The sample is the
trials with the lowest ranks, in that order. Adding or removing a trial does not change the order of
the others.
"""

from collections.abc import Iterable

from proctor.digest import sha256_hex


def choose_trials(names: Iterable[str], n: int, seed: str) -> list[str]:
    """Choose `n` trials, or all if there are fewer."""
    return sorted(set(names), key=lambda name: _rank(seed, name))[:n]


def _rank(seed: str, name: str) -> str:
    return sha256_hex(f"{seed}\n{name}".encode(errors="surrogateescape"))
