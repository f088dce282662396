"""Commands that are the first at the same time share one key and one ledger."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from proctor.ledger.keys import find_key
from proctor.ledger.place import open_or_create

AT_ONCE = 16


def at_once[Answer](ask: Callable[[], Answer]) -> list[Answer]:
    """The answers of many that ask at the same moment."""
    barrier = Barrier(AT_ONCE)

    def wait_and_ask(_: int) -> Answer:
        barrier.wait()
        return ask()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(wait_and_ask, range(AT_ONCE)))


def test_a_key_that_many_need_first_is_made_once(tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    found = at_once(lambda: str(find_key(None, env).verifier))
    assert len(set(found)) == 1


def test_a_ledger_that_many_need_first_is_made_once(tmp_path: Path) -> None:
    key = find_key(None, {"XDG_CONFIG_HOME": str(tmp_path / "config")})

    def open_one() -> tuple[str, bool]:
        ledger, is_made = open_or_create(tmp_path / "ledger", key)
        with ledger:
            return ledger.refresh().origin, is_made

    found = at_once(open_one)
    assert len({origin for origin, _ in found}) == 1
    assert sum(is_made for _, is_made in found) == 1
