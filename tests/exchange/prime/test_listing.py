"""All samples of all pages, each once, whatever the pages say and however they shift."""

from collections.abc import Callable
from typing import Any

import pytest

from proctor.errors import PrimeError
from proctor.exchange.prime.listing import Listing, Page, parse_page
from tests.exchange.prime.samples import small

LIMIT = 10


def names(listing: Listing) -> list[str]:
    return [each.name for each in listing]


def listed(n: int) -> list[dict[str, Any]]:
    return [small(number) for number in range(n)]


def paged(
    samples: list[Any],
    said: Callable[[int, int], dict[str, Any]],
    before: Callable[[int], None] = lambda _page: None,
) -> Callable[[int], Page]:
    """Pages of a list that may change; `said` is what they say besides, of a page and a total."""

    def ask(number: int) -> Page:
        before(number)
        part = samples[(number - 1) * LIMIT : number * LIMIT]
        return parse_page({"samples": part, **said(number, len(samples))}, "here", LIMIT)

    return ask


MODELS = {
    "has_more": lambda page, total: {"total": total, "has_more": page * LIMIT < total},
    "hasMore": lambda page, total: {"hasMore": page * LIMIT < total},
    "total": lambda _, total: {"total": total},
    "total_pages": lambda _, total: {"total_pages": -(-total // LIMIT)},
    "nothing": lambda _page, _total: {},
    "a full page promises more": lambda page, total: {"has_more": page * LIMIT <= total},
    "has_more is wrong": lambda _, total: {"has_more": False, "total": total},
    "words for numbers": lambda page, total: {"total": str(total), "has_more": "yes"},
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n", [1, 9, 10, 11, 30, 35])
def test_every_model_of_pages_gives_every_sample_once(model: str, n: int) -> None:
    listing = Listing(paged(listed(n), MODELS[model]))
    assert names(listing) == [f"s{number}" for number in range(n)]
    assert (listing.n_readings, listing.missing, listing.is_settled) == (1, 0, True)


def test_a_page_smaller_than_asked_for_is_no_last_page() -> None:
    samples = listed(25)

    def ask(number: int) -> Page:
        part = samples[(number - 1) * 5 : number * 5]
        return parse_page({"samples": part, "limit": 5}, "here", LIMIT)

    assert len(names(Listing(ask))) == 25


def test_samples_that_are_added_in_front_while_it_is_read_come_too_and_none_twice() -> None:
    samples = listed(30)

    def add(page: int) -> None:
        if page == 2 and len(samples) == 30:
            samples[:0] = [small(number) for number in range(100, 103)]

    listing = Listing(paged(samples, MODELS["has_more"], add))
    found = names(listing)
    assert sorted(found) == sorted(each["sample_id"] for each in samples)
    assert (listing.n_readings, listing.is_settled, listing.missing) == (2, True, 0)


def test_a_sample_that_slips_onto_a_page_that_was_read_is_found() -> None:
    samples = listed(30)

    def take_out(page: int) -> None:
        if page == 2 and len(samples) == 30:
            del samples[0]

    listing = Listing(paged(samples, MODELS["has_more"], take_out))
    found = names(listing)
    assert sorted(found) == sorted(f"s{number}" for number in range(30))
    assert listing.is_settled


def test_a_list_in_a_new_order_for_each_page_is_read_until_all_came() -> None:
    samples = listed(30)

    def turn(page: int) -> None:
        if page > 1 and len(asked) < 3:
            samples.append(samples.pop(0))
        asked.append(page)

    asked: list[int] = []
    found = names(Listing(paged(samples, MODELS["has_more"], turn)))
    assert sorted(found) == sorted(f"s{number}" for number in range(30))


def test_a_list_that_never_stands_still_is_read_three_times_and_said_to_be_so() -> None:
    samples = listed(30)
    listing = Listing(
        paged(samples, MODELS["has_more"], lambda _: samples.append(small(len(samples))))
    )
    assert len(set(names(listing))) == len(listing.seen)
    assert (listing.n_readings, listing.is_settled) == (3, False)


def test_a_total_that_is_too_large_leaves_samples_missing() -> None:
    listing = Listing(paged(listed(30), lambda _page, _total: {"total": 50}))
    assert len(names(listing)) == 30
    assert (listing.n_readings, listing.missing, listing.is_settled) == (2, 20, False)


def test_the_evaluations_own_count_is_held_against_pages_that_have_none() -> None:
    listing = Listing(paged(listed(30), MODELS["nothing"]), total=31)
    assert len(names(listing)) == 30
    assert listing.missing == 1


def test_a_page_that_repeats_for_ever_comes_to_an_end() -> None:
    asked: list[int] = []

    def ask(number: int) -> Page:
        asked.append(number)
        return parse_page({"samples": listed(10), "has_more": True}, "here", LIMIT)

    listing = Listing(ask)
    assert len(names(listing)) == 10
    assert len(asked) == 8
    assert not listing.is_settled


def test_a_sample_that_came_with_other_content_is_given_once_more() -> None:
    samples = [small(1), small(2), small(1, reward=0.75), small(1)]
    listing = Listing(paged(samples, MODELS["nothing"]))
    assert names(listing) == ["s1", "s2", "s1"]


def test_a_sample_that_is_always_there_twice_is_taken_once() -> None:
    listing = Listing(paged([small(1), small(2), small(1)], MODELS["nothing"]))
    assert names(listing) == ["s1", "s2"]
    assert (listing.n_readings, listing.is_settled, listing.last.repeated) == (2, True, 1)


def test_without_ids_samples_are_counted() -> None:
    samples = [{"reward": 1}, {"reward": 1}, {"reward": 0}, "x", {"sample_id": 7}, {"id": "y"}]
    listing = Listing(paged(samples, MODELS["has_more"]))
    assert names(listing) == ["sample-1", "sample-2", "sample-3", "sample-4", "7", "y"]
    assert listing.is_settled


def failing(at: int) -> Callable[[int], Page]:
    ask = paged(listed(30), MODELS["has_more"])

    def fail(number: int) -> Page:
        if number == at:
            raise PrimeError("gone")
        return ask(number)

    return fail


def test_what_came_before_a_failure_came() -> None:
    listing = Listing(failing(3))
    assert len(names(listing)) == 20
    assert str(listing.failure) == "gone"
    assert not listing.is_settled


def test_where_nothing_came_a_failure_is_an_error() -> None:
    with pytest.raises(PrimeError, match="gone"):
        names(Listing(failing(1)))


@pytest.mark.parametrize("value", [[], {}, {"samples": None}, {"samples": {}}, "x", 3])
def test_what_is_no_page_is_said_to_be_none(value: object) -> None:
    with pytest.raises(PrimeError, match=r"here: .*; expected an object with a list `samples`"):
        parse_page(value, "here", LIMIT)
