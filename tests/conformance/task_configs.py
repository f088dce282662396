"""Random texts of task.toml: right values, wrong types, old keys and slips of the pen."""

import json
from datetime import date
from random import Random
from typing import Any, get_args

from proctor.task.config import TaskConfig
from proctor.task.table import Table

RIGHT: dict[str, list[Any]] = {
    "name": ["acme/task", "a/b.c_d-e", "a", "a/b/c", "a/..b", "a/b\n", "-a/b", "é/b", "", "one"],
    "network_mode": ["public", "no-network", "allowlist", "PUBLIC", "none"],
    "allowed_hosts": [
        [], ["a.b"], [" A.B. "], ["http://a"], ["a:1"], ["*.a"], [""], ["a\n."], ["-a"],
        ["a" * 64], ["a..b"], ["ü.de"], ["a", "b"], [1],
    ],
    "os": ["linux", "Linux", "WINDOWS", "mac"],
    "environment_mode": ["shared", "separate", "Shared"],
    "multi_step_reward_strategy": ["mean", "final", "max"],
    "transport": ["stdio", "sse", "http", "streamable-http", "HTTP"],
    "url": ["http://x", ""],
    "command": ["true", ""],
    "topology": ["2x4", " 2x2x1 ", "2", "0x1", "2X4", "\uff12x\uff14", "2x4\n"],
    "type": ["v4", ""],
    "user": ["root", 0, 1.0, True, "0"],
    "min_reward": [0.5, 1, "0.5", True, {"a": 1}, {"a": "x"}, {}],
    "artifacts": [
        [], ["/a"], [{"source": "/a"}], ["/a", {"source": "b", "exclude": ["*"]}], [{}], [1],
    ],
    "env": [{}, {"A": "b"}, {"A": "${B:-c}"}, {"A": 1}],
    "metadata": [{}, {"a": {"b": [1, "x"]}}],
    "schema_version": ["1.0", "", 1, 1.3],
    "allow_internet": [True, False, 1, 0, "yes", "off", "maybe", 2],
    "gpu_types": [["H100"], [], "H100"],
}  # fmt: skip
OLD = {"memory", "storage", "allow_internet", "version"}
SIZES = [
    "2G", "512M", "64K", " 1.5g ", "1e3m", "-1G", "1_0G", "G", "", "12", "2GB", "nanM", "infG",
    "1e308G", "\uff11G", "1024K", "1 M", 5, 1.0, True, "1e300M",
]  # fmt: skip
WRONG: list[Any] = [
    0, 1, -1, 2.5, 3.0, 2**70, "5", "x", "", " 2 ", "1_0", True, False, [], {}, ["a"], [1], [[]],
    {"a": 1}, float("nan"), float("inf"), date(2020, 1, 2), "1e3", 1e300,
]  # fmt: skip


def make_config(random: Random) -> str:
    """A text of task.toml."""
    return "".join(f"{key} = {render(value)}\n" for key, value in _fill(TaskConfig, random).items())


def render(value: Any) -> str:
    """A value as TOML, tables inline."""
    match value:
        case dict():
            return f"{{{', '.join(f'{render(key)} = {render(v)}' for key, v in value.items())}}}"
        case list():
            return f"[{', '.join(map(render, value))}]"
        case str():
            return json.dumps(value)
        case bool():
            return str(value).lower()
        case date():
            return value.isoformat()
    return repr(value)


def _fill(table: type[Table], random: Random) -> dict[str, Any]:
    """Some keys of a table; the required ones nearly always."""
    found = {}
    share = random.choice([0.1, 0.3, 0.6])
    for key, field in table.model_fields.items():
        if random.random() < (0.95 if field.is_required() else share):
            found[key] = _choose(key, field.annotation, random)
    for key in (*table.other_spellings, "timeout_secs", "frob"):
        if random.random() < 0.1:
            found[key] = random.choice(SIZES if key in OLD else WRONG)
    if "version" in found and random.random() < 0.8:
        found["version"] = "1.0"
    keys = list(found)
    random.shuffle(keys)
    return {key: found[key] for key in keys}


def _choose(key: str, annotation: Any, random: Random) -> Any:
    chance = random.random()
    inner = _inner(annotation)
    if chance < 0.02:
        return random.choice(WRONG)
    if inner and key != "artifacts":
        if "tuple" in str(annotation):
            return [_fill(inner, random) for _ in range(random.randrange(3))]
        return _fill(inner, random)
    if key in RIGHT:
        return random.choice(RIGHT[key])
    plain = {"int": 3, "float": 1.5, "str": "text"}
    named = next((v for name, v in plain.items() if name in str(annotation)), "text")
    return [named] if "tuple" in str(annotation) else named


def _inner(annotation: Any) -> type[Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next(filter(None, map(_inner, get_args(annotation))), None)
