"""Content of messages as turns: text, thinking, calls and results; media as short markers.

All protocols are brought to Anthropic's blocks, which `proctor.traces.dialects` reads. Turns keep
no `rest`: the exact bodies are on record elsewhere, and base64 in a trace helps nobody.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from proctor.traces.dialects import parse_message
from proctor.traces.entry import Object
from proctor.traces.turn import Turn

MOST_CALLS: Final = 1000
"""Calls of one message; a model that makes more is repeating itself."""
# Arguments nested deeper are cut: what is written around them must be decodable again.
_DEEPEST: Final = 64
_LONGEST_NAME: Final = 200
_DATA_URL: Final = re.compile(r"data:([^;,]{0,100})[^,]{0,100},", re.IGNORECASE)
_TEXTS: Final = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
_HOLDERS: Final = ("source", "image_url", "input_audio", "file", "video_url")
_MEDIA: Final = ("image", "audio", "video", "document", "file", "screenshot")
_TYPES: Final = ("media_type", "mimeType", "mime_type", "format")
_DATA: Final = ("data", "file_data", "url", "image_url")
_NAMES: Final = (
    *("url", "image_url", "file_url", "fileUri", "file_uri"),
    *("filename", "file_id", "title", "name"),
)


def bound(value: Any, depth: int = _DEEPEST) -> Any:
    """Return JSON data with everything below a depth left out."""
    if isinstance(value, dict):
        return {key: bound(held, depth - 1) for key, held in value.items()} if depth else "…"
    if isinstance(value, list):
        return [bound(held, depth - 1) for held in value] if depth else "…"
    return value


def make_turn(role: str, blocks: Sequence[Object], line: int) -> Turn:
    """Make a turn from normalised blocks."""
    return slim(parse_message({"role": role, "content": list(blocks)}, line))


def slim(turn: Turn) -> Turn:
    """Return the turn without what has no field."""
    return Turn(
        line=turn.line,
        role=turn.role,
        text=turn.text,
        thinking=turn.thinking or None,
        calls=tuple(
            msgspec.structs.replace(call, arguments=bound(call.arguments), rest={})
            for call in turn.calls[:MOST_CALLS]
        ),
        results=tuple(msgspec.structs.replace(result, rest={}) for result in turn.results),
    )


def text_block(text: str) -> Object:
    """Make a text block."""
    return {"type": "text", "text": text}


def thinking_block(text: str) -> Object:
    """Make a block of reasoning."""
    return {"type": "thinking", "thinking": text}


def call_block(name: Any, arguments: Any, call_id: Any) -> Object:
    """Make the block of a call; its arguments are an object, or JSON text."""
    return {"type": "tool_use", "name": name, "input": arguments, "id": call_id}


def result_block(content: Any, call_id: Any, name: Any = None, *, is_error: Any = None) -> Object:
    """Make the block of a result."""
    text = render_content(content)
    found = {"content": text, "tool_use_id": call_id, "name": name, "is_error": is_error}
    return {"type": "tool_result", **found}


def normalise(content: Any) -> list[Object]:
    """Return content as blocks of text, thinking, calls and results, in order."""
    if isinstance(content, str):
        return [text_block(content)]
    if not isinstance(content, list):
        return [] if content is None else [text_block(_as_json(content))]
    blocks = (_normalise(block) for block in content)
    return [block for block in blocks if block is not None]


def _normalise(block: Any) -> Object | None:
    if not isinstance(block, dict):
        return text_block(block if isinstance(block, str) else _as_json(block))
    kind = block.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind == "redacted_thinking":
        return None
    if kind == "thinking":
        return thinking_block(render_content(block.get("thinking")))
    if kind.endswith("tool_use"):
        return call_block(block.get("name"), block.get("input"), block.get("id"))
    if kind.endswith("tool_result"):
        called = block.get("tool_use_id")
        return result_block(block.get("content"), called, is_error=block.get("is_error"))
    return text_block(_text_of(kind, block))


def _text_of(kind: str, block: Object) -> str:
    key = "refusal" if kind == "refusal" else "text"
    if (kind in _TEXTS or kind in ("", "refusal")) and isinstance(block.get(key), str):
        return str(block[key])
    if any(name in kind for name in _MEDIA):
        return mark_media(kind, block)
    named = _find_text(block, _NAMES)
    return f"[{kind or 'unknown content'}{': ' + _cut(named) if named else ''}]"


def render_content(content: Any) -> str:
    """Return content as text, with markers for what is none."""
    if isinstance(content, dict) and not isinstance(content.get("type"), str):
        return _as_json(content)
    blocks = normalise([content] if isinstance(content, dict) else content)
    texts = (block.get("text", block.get("content")) for block in blocks)
    return "\n".join(text for text in texts if isinstance(text, str))


def _as_json(value: Any) -> str:
    return json.dumps(bound(value), ensure_ascii=False)


def mark_media(kind: str, block: Object) -> str:
    """Describe an image or another file in a few words, such as [image: image/png, 2,048 bytes]."""
    held = dict(block)
    for holder in _HOLDERS:
        if isinstance(inner := block.get(holder), dict):
            held = {**held, **inner}
    label = next((name for name in _MEDIA if name in kind), "file")
    label = "image" if label == "screenshot" else label
    data, media_type = _find_data(held), _find_text(held, _TYPES)
    if data is None:
        known = [_cut(text) for text in (media_type, _find_text(held, _NAMES)) if text]
        return f"[{label}: {', '.join(known)}]" if known else f"[{label}]"
    url_type, size = data
    return f"[{label}: {_cut(url_type or media_type or 'unknown type')}, {size:,} bytes]"


def _find_data(held: Object) -> tuple[str | None, int] | None:
    """The media type in a data URL, and the number of bytes that base64 text stands for."""
    for key in _DATA:
        value = held.get(key)
        if not isinstance(value, str) or not value:
            continue
        if found := _DATA_URL.match(value):
            return found[1] or None, _count_bytes(value, found.end())
        if key in ("data", "file_data"):
            return None, _count_bytes(value, 0)
    return None


def _count_bytes(text: str, start: int) -> int:
    padding = 2 if text.endswith("==") else 1 if text.endswith("=") else 0
    return max(0, (len(text) - start) * 3 // 4 - padding)


def _find_text(held: Object, keys: Iterable[str]) -> str | None:
    return next((held[key] for key in keys if isinstance(held.get(key), str) and held[key]), None)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def name_results(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Return the turns, each result named after the call with the same id."""
    names: dict[str | None, str] = {}
    named: list[Turn] = []
    for turn in turns:
        names.update((call.call_id, call.name) for call in turn.calls if call.call_id)
        results = tuple(
            msgspec.structs.replace(result, name=result.name or names.get(result.call_id))
            for result in turn.results
        )
        named.append(msgspec.structs.replace(turn, results=results))
    return tuple(named)
