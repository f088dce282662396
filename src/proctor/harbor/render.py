"""Harbor's exact JSON text: pydantic's numbers, keys, indentation and escapes."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from proctor.reward.number import json_number

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def render_json(value: object, indent: int | None = None, level: int = 0) -> str:
    """Render dicts, lists, strings and numbers as JSON text, without a final newline.

    Keys may be numbers; two nan keys stay two, as in harbor's files.
    """
    if isinstance(value, str):
        return render_string(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return json_number(value)
    if isinstance(value, Mapping):
        colon = ":" if indent is None else ": "
        items = [
            f"{_render_key(key)}{colon}{render_json(item, indent, level + 1)}"
            for key, item in value.items()
        ]
        return _enclose("{", "}", items, indent, level)
    if isinstance(value, Sequence):
        items = [render_json(item, indent, level + 1) for item in value]
        return _enclose("[", "]", items, indent, level)
    raise TypeError(f"{type(value).__name__} has no JSON text")


def render_string(text: str) -> str:
    """Render a string in quotes, not ASCII-escaped."""
    return json.dumps(written_text(text), ensure_ascii=False)


def written_text(text: str) -> str:
    """Replace lone surrogates as in harbor's files: each becomes three U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd" * 3, text)


def render_time(moment: datetime) -> str:
    """Format a time as ISO text: `Z` for UTC, nothing for local time, microseconds if any."""
    return moment.isoformat().replace("+00:00", "Z")


def _render_key(key: object) -> str:
    # Values follow pydantic's number text, but keys are Python's repr: "1e-05", "nan".
    return render_string(key if isinstance(key, str) else repr(key))


def _enclose(left: str, right: str, items: list[str], indent: int | None, level: int) -> str:
    if not items or indent is None:
        return f"{left}{','.join(items)}{right}"
    inner = "\n" + " " * (indent * (level + 1))
    outer = "\n" + " " * (indent * level)
    return f"{left}{inner}{f',{inner}'.join(items)}{outer}{right}"
