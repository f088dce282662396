"""A cache of the values that were used last."""

from proctor.web.lru import LruCache


def test_the_value_that_was_not_used_for_longest_is_evicted() -> None:
    cache = LruCache[str](2)
    cache.keep("a", "A")
    cache.keep("b", "B")
    assert cache.find("a") == "A"
    cache.keep("c", "C")
    assert (cache.find("a"), cache.find("b"), cache.find("c")) == ("A", None, "C")


def test_a_value_that_does_not_fit_is_made_each_time() -> None:
    cache = LruCache[str](2, lambda value: len(value) < 2)
    made = iter(["large", "small", "x", "y"])
    assert [cache.find_or_make("a", lambda: next(made)) for _ in range(4)] == [
        "large", "small", "x", "x",
    ]  # fmt: skip
