"""Whatever is done to a ledger is seen and named right by a holder of an older checkpoint."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from proctor.ledger.verification.verify import Verification, verify_ledger
from tests.ledger.ledgers import RichLedger, index_of, make_rich_ledger
from tests.ledger.mutations import LOG_MUTATIONS, Expected, Mutation, Subject
from tests.ledger.signed_mutations import SIGNED_MUTATIONS

MUTATIONS = (*LOG_MUTATIONS, *SIGNED_MUTATIONS)


def name_of(mutation: Mutation) -> str:
    """The mutation's words."""
    if isinstance(mutation, partial):
        return f"{mutation.func.__name__}:{mutation.keywords['field_of'].decode()}"
    return mutation.__name__


SIZE, LARGE = 300, 1000


@pytest.fixture(scope="module")
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RichLedger:
    """Entries of all kinds in some ten segments."""
    size = getattr(request, "param", SIZE)
    return make_rich_ledger(tmp_path_factory.mktemp("rich"), size, segment_size=size * 200)


@pytest.fixture
def subject(ledger: RichLedger) -> Iterator[Subject]:
    """The ledger, put back afterwards."""
    subject = Subject(ledger, random.Random())
    yield subject
    subject.put_back()


def verify(ledger: RichLedger, *, fast: bool = False) -> Verification:
    key, older = ledger.key.verifier, [ledger.older]
    return verify_ledger(ledger.directory, key=key, since=older, fast=fast)


def complaint_about(expected: Expected, found: Verification) -> str | None:
    """What is wrong with what was found; None if nothing is."""
    kinds = {damage.kind for damage in found.damage}
    named = {damage.seq for damage in found.damage}
    if not kinds and (expected.is_note or not expected.kinds):
        return "nothing was said" if expected.is_note and not found.notes else None
    is_right = (
        kinds
        and kinds <= expected.kinds
        and (expected.must is None or expected.must in kinds)
        and (expected.seqs is None or expected.seqs <= named)
    )
    return None if is_right else f"expected {expected}, found {found.damage}"


def try_once(subject: Subject, mutation: Mutation, seed: str) -> list[str]:
    """Damage the ledger, look at it, put it back."""
    subject.random.seed(seed)
    try:
        expected = mutation(subject)
        wrong = complaint_about(expected, verify(subject.ledger))
    finally:
        subject.put_back()
    return [f"{seed}: {wrong}"] if wrong else []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_every_mutation_is_seen_and_named_right(subject: Subject, mutation: Mutation) -> None:
    seeds = [f"{name_of(mutation)} {number}" for number in range(3)]
    assert [wrong for seed in seeds for wrong in try_once(subject, mutation, seed)] == []


@pytest.mark.soak
@pytest.mark.parametrize("ledger", [LARGE], indirect=True)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_a_hundred_of_every_mutation_are_seen_and_named_right(
    subject: Subject, mutation: Mutation
) -> None:
    seeds = [f"{name_of(mutation)} long {number}" for number in range(100)]
    assert [wrong for seed in seeds for wrong in try_once(subject, mutation, seed)] == []


@pytest.mark.parametrize("mutation", LOG_MUTATIONS, ids=name_of)
def test_every_mutation_of_the_log_is_seen_fast_and_without_an_index(
    subject: Subject, mutation: Mutation
) -> None:
    subject.random.seed(f"{name_of(mutation)} without an index")
    expected = mutation(subject)
    subject.remove(index_of(subject.ledger.directory))
    found = verify(subject.ledger, fast=True)
    assert bool(found.damage) is not expected.is_note
    assert bool(found.notes) or not expected.is_note


def test_the_ledger_itself_is_sound(ledger: RichLedger) -> None:
    found = verify(ledger)
    assert (found.damage, found.notes, found.size, found.withheld) == ([], [], SIZE, 2)
    assert not list(Path(ledger.directory).glob("torn/*"))
