"""Checks that a claim contains every entry that its attestation counts.

The attestation is an entry like any other, signed by the ledger's owner before or with the claim.
If a claim omits one of the counted entries, its count and digest differ from the attested ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proctor.ledger.attestation import Survey, digest_entries
from proctor.ledger.entry import AttestEntry, WithholdEntry, decode_line
from proctor.ledger.tree import leaf_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The parts of the log that a claim contains, by position."""

    experiment: str
    dataset: str | None
    other_datasets: int
    """Trials that belong to other datasets, according to the claim."""
    attestation: int | None
    lines: Mapping[int, bytes]
    withheld: Mapping[int, bytes]
    """Leaf hashes of withheld trials."""
    hashed: Mapping[int, bytes]
    """Leaf hashes of entries that are included as hashes only."""

    def find_attestation(self) -> AttestEntry | None:
        """The attestation, if the stated position has one of the experiment."""
        line = self.lines.get(-1 if self.attestation is None else self.attestation)
        entry = decode_line(line, "the attestation") if line is not None else None
        is_ours = isinstance(entry, AttestEntry) and entry.experiment_id == self.experiment
        return entry if is_ours and isinstance(entry, AttestEntry) else None


def find_omissions(carried: Carried) -> Iterator[str]:
    """Messages for entries that the claim lacks or has in excess of its attestation."""
    if carried.attestation is None:
        if carried.hashed:
            yield "entries are included as hashes only, but no attestation counts them"
        return
    entry = carried.find_attestation()
    if entry is None:
        place = carried.attestation
        yield f"entry {place} is not an attestation of {carried.experiment}, or is not in the claim"
        return
    survey = _survey(carried)
    counted = survey.places_of(carried.experiment, entry.size)
    counted = dict(sorted({**counted, **carried.hashed}.items()))
    if entry.size > entry.seq or max(carried.hashed, default=-1) >= entry.size:
        yield f"the attestation of entry {entry.seq} does not cover the entries that it should"
    if (len(counted), digest_entries(counted)) != (entry.entries, entry.digest):
        yield (
            f"entry {entry.seq} attests {entry.entries:,} entries of {carried.experiment} among "
            f"the first {entry.size:,} of the ledger; the claim has {len(counted):,} of them"
            f"{', but different ones' if len(counted) == entry.entries else ''}: "
            "something was omitted or added"
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
    """Report trials of the claimed dataset that may hide among the entries with only a hash."""
    unexplained = undisclosed_entries(carried)
    if unexplained and carried.dataset is None:
        yield (
            f"entry {unexplained[0]} of the experiment is included as a hash only, and no entry "
            "withholds it"
        )
    elif len(unexplained) > carried.other_datasets:
        yield (
            f"{len(unexplained):,} entries are included as hashes only; counts.other_datasets "
            f"is {carried.other_datasets}"
        )


def undisclosed_entries(carried: Carried) -> list[int]:
    """Entries that are included as hashes only, although no entry withholds them."""
    entries = [decode_line(line, "an entry") for line in carried.lines.values()]
    taken_out = {(each.entry, each.leaf) for each in entries if isinstance(each, WithholdEntry)}
    return [seq for seq, leaf in carried.hashed.items() if (seq, leaf.hex()) not in taken_out]
