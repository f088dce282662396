"""Whether a claim holds every entry that an attestation in it counts.

The attestation is an entry like any other, signed by the ledger's owner before or with the claim.
A claim that leaves one of the counted entries out has another count and another digest. Nothing
here reads a ledger.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proctor.ledger.attestation import Survey, digest_entries
from proctor.ledger.entry import AttestEntry, WithholdEntry, decode_line
from proctor.ledger.tree import leaf_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a claim carries of the log, by place."""

    experiment: str
    dataset: str | None
    other_datasets: int
    """Trials that the claim says belong to other datasets."""
    attestation: int | None
    lines: Mapping[int, bytes]
    withheld: Mapping[int, bytes]
    """Leaves of trials whose lines were withheld."""
    hashed: Mapping[int, bytes]
    """Leaves of entries that are here by these alone."""

    def find_attestation(self) -> AttestEntry | None:
        """The attestation, if the place that is named holds one of the experiment."""
        line = self.lines.get(-1 if self.attestation is None else self.attestation)
        entry = decode_line(line, "the attestation") if line is not None else None
        is_ours = isinstance(entry, AttestEntry) and entry.experiment_id == self.experiment
        return entry if is_ours and isinstance(entry, AttestEntry) else None


def find_omissions(carried: Carried) -> Iterator[str]:
    """Where the claim lacks what its attestation counts, or has more; in sentences.

    Raises:
        DamageError: a line is no entry.
    """
    if carried.attestation is None:
        if carried.hashed:
            yield "entries are there by their hashes alone, and no attestation counts them"
        return
    entry = carried.find_attestation()
    if entry is None:
        place = carried.attestation
        yield f"entry {place} is no attestation of {carried.experiment}, or is not in the claim"
        return
    survey = _survey(carried)
    counted = survey.places_of(carried.experiment, entry.size)
    counted = dict(sorted({**counted, **carried.hashed}.items()))
    if entry.size > entry.seq or max(carried.hashed, default=-1) >= entry.size:
        yield f"the attestation of entry {entry.seq} does not cover what it is said to cover"
    if (len(counted), digest_entries(counted)) != (entry.entries, entry.digest):
        yield (
            f"entry {entry.seq} attests {entry.entries:,} entries of {carried.experiment} among "
            f"the first {entry.size:,} of the ledger; the claim has {len(counted):,} of them"
            f"{' that are others' if len(counted) == entry.entries else ''}: "
            "something was left out or put in"
        )
    plan = survey.state(carried.experiment, entry.size).plan
    if entry.plan != plan and entry.plan not in carried.hashed:
        yield f"entry {entry.seq} attests the plan {entry.plan}; the claim has {plan}"
    yield from _find_unexplained(carried)


def _survey(carried: Carried) -> Survey:
    survey = Survey()
    for seq, line in sorted(carried.lines.items()):
        survey.add(seq, leaf_hash(line), line)
    for seq, leaf in carried.withheld.items():
        survey.add(seq, leaf, None)
    return survey


def _find_unexplained(carried: Carried) -> Iterator[str]:
    """A trial of the claim's own must not hide among what is there by its hash alone."""
    unexplained = find_kept_back(carried)
    if unexplained and carried.dataset is None:
        yield (
            f"entry {unexplained[0]} of the experiment is there by its hash alone, and no entry "
            "says that it was withheld"
        )
    elif len(unexplained) > carried.other_datasets:
        yield (
            f"{len(unexplained):,} entries are there by their hashes alone; counts.other_datasets "
            f"is {carried.other_datasets}"
        )


def find_kept_back(carried: Carried) -> list[int]:
    """Entries that are there by their hashes alone although nothing says they were withheld."""
    entries = [decode_line(line, "an entry") for line in carried.lines.values()]
    taken_out = {(each.entry, each.leaf) for each in entries if isinstance(each, WithholdEntry)}
    return [seq for seq, leaf in carried.hashed.items() if (seq, leaf.hex()) not in taken_out]
