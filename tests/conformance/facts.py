"""What a program made of an input, as a vector's `expect` has it, and whether two are the same.

{"ok": …}    or    {"error": {"class", "mro", "message", "cause"[, "pydantic_errors"]}}
"""

import json
from collections.abc import Callable
from typing import Any

from pydantic_core import ValidationError

type Fact = dict[str, Any]

_PYDANTIC_FLAG = "message_is_pydantic_version_dependent"

_NOT_COMPARED = frozenset({"mro", "reward_key_order", _PYDANTIC_FLAG})
"""mro is compared as a set; the other two say how to read the vector."""


def observe(compute: Callable[[], Any], verifier_dir: str | None = None) -> Fact:
    """The value, or the error as data, with the directory's name taken out of its message."""
    try:
        return {"ok": compute()}
    except Exception as error:  # noqa: BLE001 - whatever a program raises is the fact about it
        return {"error": _describe(error, verifier_dir)}


def _describe(error: Exception, verifier_dir: str | None) -> Fact:
    message = str(error)
    if verifier_dir is not None:
        message = message.replace(verifier_dir, "{verifier_dir}")
    cause = error.__cause__
    fact = {
        "class": type(error).__name__,
        "mro": [base.__name__ for base in type(error).__mro__ if base is not object],
        "message": message,
        "cause": cause and {"class": type(cause).__name__, "message": str(cause)},
    }
    if not isinstance(error, ValidationError):
        return fact
    details = [
        {"loc": list(detail["loc"]), "type": detail["type"], "msg": detail["msg"]}
        for detail in error.errors()
    ]
    return fact | {"pydantic_errors": details, _PYDANTIC_FLAG: True}


def difference(expected: Fact, actual: Fact) -> str | None:
    """Where two facts differ, apart from pydantic's wording and hash order; None when nowhere."""
    if comparable(actual) != comparable(expected):
        return f"expected {_render(comparable(expected))}\n   found {_render(comparable(actual))}"
    missing = set(_mro(expected)) - set(_mro(actual))
    return f"is no {', '.join(sorted(missing))}, which harbor's is" if missing else None


def comparable(fact: Any) -> Any:
    """A fact without the parts that are not promised."""
    if isinstance(fact, list):
        return [comparable(item) for item in fact if not _is_skipped_threshold(item)]
    if not isinstance(fact, dict):
        return fact
    left_out = _NOT_COMPARED | ({"message"} if fact.get(_PYDANTIC_FLAG) else set())
    return {key: comparable(value) for key, value in fact.items() if key not in left_out}


def _is_skipped_threshold(entry: Any) -> bool:
    # Harbor also logs that it did not look at a threshold. That stops nothing, and we keep no log.
    match entry:
        case ["debug", str(message)]:
            return message.endswith("globally disabled; skipping threshold check")
    return False


def _mro(fact: Fact) -> list[str]:
    return list(fact.get("error", {}).get("mro", []))


def _render(fact: Any) -> str:
    return json.dumps(fact, ensure_ascii=False)
