"""Task directories and task.toml: the real harbor beside ours, in one process."""

import os
import tomllib
from collections import Counter
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel

from proctor.errors import TaskError
from proctor.task.checksum import task_checksum
from proctor.task.config import TaskConfig
from proctor.task.digests import find_lock_files, lock_digest
from proctor.task.directory import find_faults, load_task, strip_canary
from proctor.task.hashed import FileHashes
from proctor.task.parse import ENDS_JOB, parse_config
from tests.conformance.parity import SEED
from tests.conformance.task_configs import make_config
from tests.conformance.task_trees import make_tree
from tests.conformance.theirs import harbor_module

TASKS = Path(__file__).resolve().parent.parent / "data" / "harbor" / "tasks"
EVERY_TASK = sorted(path for path in TASKS.glob("*/*") if path.is_dir())

# Harbor warns of old keys, and leaves listings open where it fails.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed scandir:ResourceWarning"),
]

REFUSED, ENDED = "refused", "ended"


def rounds(default: int) -> range:
    return range(int(os.environ.get("PROCTOR_FUZZ_CASES") or default))


def seeded(subject: str, index: int) -> Random:
    return Random(f"{os.environ.get('PROCTOR_FUZZ_SEED') or SEED}/{subject}/{index}")


def plain(value: Any) -> Any:
    """A config as nested plain values; numbers as text, so that nan is nan and 1 is not 1.0."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else repr(value)


def their_config(text: str) -> Any:
    """The config that harbor reads from a text, or how it fails."""
    config = harbor_module("harbor.models.task.config").TaskConfig
    try:
        return config.model_validate_toml(text)
    except (tomllib.TOMLDecodeError, harbor_module("pydantic").ValidationError):
        return REFUSED
    except (ValueError, OverflowError, RecursionError):
        return ENDED


def our_config(text: str) -> Any:
    parsed = parse_config(text)
    if parsed.config:
        return parsed.config
    return ENDED if parsed.diagnostics[0].code in ENDS_JOB else REFUSED


def environments(config: Any, find: Callable[[Any, Any], Any]) -> list[Any]:
    """The verifier's environment in the task and in each step."""
    return [plain(find(config, step)) for step in (None, *(config.steps or ()))]


def compare_configs(count: int) -> Counter[str]:
    resolve = harbor_module(
        "harbor.models.task.verifier_mode"
    ).resolve_effective_verifier_env_config
    seen: Counter[str] = Counter()
    for index in rounds(count):
        text = make_config(seeded("task-config", index))
        theirs, ours = their_config(text), our_config(text)
        assert plain(ours) == plain(theirs), text
        seen[ours if isinstance(ours, str) else "taken"] += 1
        if isinstance(ours, TaskConfig):
            find = TaskConfig.find_verifier_environment
            assert environments(ours, find) == environments(theirs, resolve), text
    return seen


def test_random_configs_are_taken_as_harbor_takes_them() -> None:
    seen = compare_configs(1500)
    # The comparison says something only if all ways to end are met.
    assert min(seen["taken"], seen[REFUSED], seen[ENDED]) > 10


@pytest.mark.soak
def test_many_random_configs_are_taken_as_harbor_takes_them() -> None:
    assert compare_configs(50_000)["taken"] > 1000


@pytest.mark.parametrize(
    "text",
    ["", "a = " + "[" * 5000 + "]" * 5000, "a = " + "1" * 5000, "\x00", "a = 1\ra = 2", "\ufeff"],
)
def test_odd_texts_end_as_in_harbor(text: str) -> None:
    assert plain(our_config(text)) == plain(their_config(text))


def their_verdict(path: Path, *, verifying: bool) -> str | bool:
    task = harbor_module("harbor.models.task.task").Task
    try:
        return bool(task.is_valid_dir(path, disable_verification=not verifying))
    except (OSError, ValueError, OverflowError, RecursionError):
        return ENDED


def our_verdict(path: Path, *, verifying: bool) -> str | bool:
    faults = find_faults(path, verifying=verifying)
    return ENDED if faults and faults[0].code in ENDS_JOB else not faults


def outcome(compute: Callable[[], Any], *errors: type[Exception]) -> Any:
    try:
        return compute()
    except errors:
        return REFUSED


def their_facts(path: Path) -> dict[str, Any]:
    packager = harbor_module("harbor.publisher.packager").Packager
    task = harbor_module("harbor.models.task.task").Task
    errors = (OSError, ValueError, OverflowError)
    # pathspec's own error for links in a circle is none of Python's.
    circle = harbor_module("scantree").SymlinkRecursionError
    dirhash = harbor_module("dirhash").dirhash
    facts = {
        "checksum": outcome(lambda: dirhash(path.resolve(), "sha256"), *errors, circle),
        "lock": outcome(lambda: packager.compute_content_hash(path)[0], *errors),
        "files": outcome(lambda: _names(packager.collect_files(path), path), *errors),
        "valid": their_verdict(path, verifying=True),
        "valid unverified": their_verdict(path, verifying=False),
    }
    if facts["valid"] is True:
        facts["task"] = outcome(lambda: _describe_theirs(task(path)), *errors)
    return facts


def _names(files: list[Path], root: Path) -> list[str]:
    return [file.relative_to(root.resolve()).as_posix() for file in files]


def _describe_theirs(task: Any) -> list[Any]:
    steps = [task.step_instruction(step.name) for step in task.config.steps or ()]
    return [task.name, task.short_name, task.instruction, steps]


def our_facts(path: Path) -> dict[str, Any]:
    hashes = FileHashes()
    facts = {
        "checksum": outcome(lambda: task_checksum(path, hashes), TaskError),
        "lock": outcome(lambda: lock_digest(path, hashes), TaskError),
        "files": outcome(lambda: find_lock_files(path), TaskError),
        "valid": our_verdict(path, verifying=True),
        "valid unverified": our_verdict(path, verifying=False),
    }
    if facts["valid"] is True:
        facts["task"] = outcome(lambda: _describe_ours(path), TaskError)
    return facts


def _describe_ours(path: Path) -> list[Any]:
    task = load_task(path)
    return [task.name, task.short_name, task.instruction, [s.instruction for s in task.steps]]


def compare_trees(root: Path, count: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for index in rounds(count):
        path = make_tree(seeded("task-tree", index), root / str(index))
        theirs, ours = their_facts(path), our_facts(path)
        if any(fault.code == "step-outside" for fault in find_faults(path)):
            # harbor would write what such a step leaves outside of its trial.
            seen["step outside"] += 1
            continue
        assert ours == theirs, f"{path}: {find_faults(path)}"
        seen.update(f"{key} {REFUSED if v == REFUSED else bool(v)}" for key, v in ours.items())
        seen[f"verdict {ours['valid']}"] += 1
    return seen


def test_random_directories_are_hashed_and_judged_as_harbor_does(tmp_path: Path) -> None:
    seen = compare_trees(tmp_path, 500)
    met = ["checksum True", "lock True", "checksum refused", "lock refused", "verdict True"]
    assert min(seen[key] for key in (*met, "verdict False", "verdict ended", "task True")) > 3


@pytest.mark.soak
def test_many_random_directories_are_hashed_and_judged_as_harbor_does(tmp_path: Path) -> None:
    assert compare_trees(tmp_path, 10_000)["verdict True"] > 500


@pytest.mark.parametrize("path", EVERY_TASK, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_real_tasks_are_hashed_and_judged_as_harbor_does(path: Path) -> None:
    assert our_facts(path) == their_facts(path)


def test_random_instructions_lose_the_canary_lines_that_harbor_strips() -> None:
    parts = [
        "<!--",
        "-->",
        "#",
        "canary",
        "CaNaRy",
        " ",
        "\n",
        "\n",
        "\t",
        "x",
        "\u2028",
        "\u017f",
        "--",
    ]
    theirs = harbor_module("harbor.models.task.task").strip_canary
    stripped = 0
    for index in rounds(3000):
        random = seeded("canary", index)
        text = "".join(random.choices(parts, k=random.randrange(12)))
        assert strip_canary(text) == theirs(text), repr(text)
        stripped += strip_canary(text) != text
    assert stripped > 50
