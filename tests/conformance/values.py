"""The value encoding of the golden vectors: `1`, `1.0`, `true` and `"1"` stay apart, bit for bit.

    null · {"bool": b} · {"int": "decimal"} · {"float": repr, "hex": float.hex()} · {"str": s} ·
    {"dict": [[key, value], …]} in order · {"list": [value, …]}

Two values are the same exactly when their encodings are equal; every nan is one nan.
"""

import json
from decimal import Decimal
from typing import Any

from proctor.reward.number import json_number

type Encoded = Any
"""Plain JSON in the shape above; its type is not worth writing down."""


def encode_value(value: object) -> Encoded:
    match value:
        case None:
            return None
        case float():
            return {"float": repr(value), "hex": value.hex()}
        case dict():
            return {"dict": [[key, encode_value(item)] for key, item in value.items()]}
        case list():
            return {"list": [encode_value(item) for item in value]}
        case bool() | str():
            return {type(value).__name__: value}
    assert isinstance(value, int), f"no encoding for {value!r}"
    return {"int": str(Decimal(value))}


def decode_value(encoded: Encoded) -> Any:
    if encoded is None:
        return None
    (kind, body), *_ = encoded.items()
    match kind:
        case "int":
            return int(Decimal(body))
        case "float":
            return _parse_float(encoded)
        case "dict":
            return {key: decode_value(item) for key, item in body}
        case "list":
            return [decode_value(item) for item in body]
    assert kind in {"bool", "str"}, f"unknown value encoding {encoded!r}"
    return body


def _parse_float(encoded: Encoded) -> float:
    value = float.fromhex(encoded["hex"])
    assert repr(value) == encoded["float"], f"hex and repr disagree in {encoded!r}"
    return value


def render_compact(value: object) -> str:
    """JSON as harbor's models write it without an indent."""
    match value:
        case dict():
            pairs = (
                f"{_render_text(str(key))}:{render_compact(item)}" for key, item in value.items()
            )
            return f"{{{','.join(pairs)}}}"
        case int() | float():
            return json_number(value)
        case None:
            return "null"
    raise AssertionError(f"no JSON text for {value!r}")


def _render_text(text: str) -> str:
    # A lone surrogate has no UTF-8: each of the three bytes it would have becomes U+FFFD.
    writable = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return json.dumps(writable, ensure_ascii=False)
