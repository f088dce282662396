"""Convert Terminal-Bench's older task directories, those with a task.yaml, to Harbor's format.

    task.yaml                instruction.md, and task.toml for the keys that harbor keeps
    run-tests.sh, tests/     tests/test.sh, tests/: exit code 0 gives reward 1, any other 0
    solution.sh              solution/solve.sh
    docker-compose.yaml      instructions at the end of the Dockerfile, or a compose file for what
                             a Dockerfile cannot express
    all other files          environment/

The output equals that of harbor 0.13.1's own mapper byte for byte, except for two bugs: harbor
loses control characters in task.toml, and of several Dockerfiles it extends an arbitrary one. A
task that harbor cannot map is a TaskError here too, and so is one whose links or build context
lead out of its directory. Nothing of the task is run or built.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from proctor.diagnostic import Diagnostic
from proctor.errors import TaskError
from proctor.task.parse import read_text
from proctor.task.presence import is_directory, is_file, is_there
from proctor.task.terminal_bench_compose import (
    NAME as COMPOSE,
)
from proctor.task.terminal_bench_compose import (
    Compose,
    extend_dockerfile,
    parse_compose,
    render_compose,
)

CONFIG = "task.yaml"
_LARGEST = 1 << 20
# Converted separately; not part of the environment.
_NEVER_COPIED = frozenset({CONFIG, COMPOSE, "solution.sh", "run-tests.sh", "tests"})
# Appended to run-tests.sh.
_REWARD = """
_EXIT_CODE=$?
if [ $_EXIT_CODE -eq 0 ]; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
exit $_EXIT_CODE
"""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class MappedTask(msgspec.Struct, frozen=True):
    """A converted task."""

    directory: Path
    """The directory that was written."""
    notes: tuple[Diagnostic, ...] = ()
    """Notes about the conversion."""


class Difficulty(StrEnum):
    """Difficulty, in the author's opinion."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"
    UNKNOWN = "unknown"


class OldConfig(BaseModel):
    """task.yaml, without keys that harbor drops, such as parser_name."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    instruction: str
    author_name: str = "unknown"
    author_email: str = "unknown"
    difficulty: Difficulty = Difficulty.UNKNOWN
    category: str = "software_engineering"
    tags: tuple[str, ...] = ()
    estimated_duration_sec: float | None = None
    expert_time_estimate_min: float | None = None
    junior_time_estimate_min: float | None = None
    max_agent_timeout_sec: float = Field(default=360.0)
    """Time limit of the agent in seconds."""
    max_test_timeout_sec: float = Field(default=60.0)
    """Time limit of the tests in seconds."""


def is_terminal_bench_task(path: Path) -> bool:
    """Whether a directory is an older task: it has a task.yaml and no task.toml."""
    return is_file(path / CONFIG) and not is_there(path / "task.toml")


def map_task(source: Path, target: Path) -> MappedTask:
    """Convert an older task; its new name is that of the target directory.

    The target is written completely or not at all.

    Raises:
        TaskError: it cannot be converted, or the target exists.
    """
    if is_there(target):
        raise TaskError(f"{target}: already exists; expected a new directory")
    building = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        building.mkdir(parents=True)
        notes = _write(source, building)
        building.rename(target)
    except TaskError as error:
        raise TaskError(f"{source}: {error}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{source}: a Dockerfile or script is not UTF-8: {error.reason}") from error
    except (OSError, shutil.Error) as error:
        raise TaskError(f"{source}: cannot be converted: {error}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return MappedTask(target, tuple(notes))


def _write(source: Path, target: Path) -> list[Diagnostic]:
    _check_tree(source)
    if is_there(source / "solution.yaml"):
        raise TaskError("uses solution.yaml, which harbor does not support; expected solution.sh")
    config = _load_old_config(source / CONFIG)
    for name in ("environment", "tests"):
        (target / name).mkdir()
    notes = _write_environment(source, target / "environment")
    _write_solution(source, target)
    _write_tests(source, target / "tests")
    end = "" if config.instruction.endswith("\n") else "\n"
    _write_text(target / "instruction.md", f"{config.instruction}{end}")
    _write_text(target / "task.toml", render_config(config))
    return notes


def _check_tree(source: Path) -> None:
    """Refuse links out of the task: only the task's own files may be copied, never the host's."""
    root = Path(os.path.realpath(source))
    for path in _walk(root):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            real = Path(os.path.realpath(path))
            if not real.is_relative_to(root) or not real.exists():
                where = path.relative_to(root)
                raise TaskError(f"{where} is a link out of the task or to nothing; expected a file")
        elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise TaskError(f"{path.relative_to(root)} is not a file, directory or link")


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root, onerror=_raise):
        yield from (Path(folder, name) for name in [*folders, *files])


def _raise(error: OSError) -> None:
    raise error


def _load_old_config(path: Path) -> OldConfig:
    try:
        return OldConfig.model_validate(_load_yaml(path))
    except ValidationError as error:
        faults = (
            f"{'.'.join(map(str, one['loc'])) or 'all of it'}: {one['msg']}"
            for one in error.errors(include_input=False)
        )
        raise TaskError(f"{path.name}: {'; '.join(faults)}") from error


def _load_yaml(path: Path) -> object:
    if not is_file(path):
        raise TaskError(f"no {path.name}; an older Terminal-Bench task needs one")
    try:
        found: object = yaml.safe_load(read_text(path, _LARGEST))
    # An impossible date is a ValueError; so is text that is not UTF-8.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TaskError(f"{path.name}: not readable as YAML: {reason}") from error
    return found


def _write_environment(source: Path, target: Path) -> list[Diagnostic]:
    compose = parse_compose(_load_yaml(source / COMPOSE))
    if compose is None:
        _copy_rest(source, target, set(_NEVER_COPIED))
        return [_note("no-service", f"{COMPOSE} has no services")]
    context = compose.context_of(compose.main)
    placed = {*_NEVER_COPIED, "Dockerfile" if context == "." else context}
    notes = []
    dockerfile = _copy_context(source, context, target)
    if dockerfile is None:
        notes.append(_note("no-dockerfile", f"build context {context!r} has no Dockerfile"))
    else:
        _copy_what_it_copies(dockerfile, source, target)
        _write_text(dockerfile, extend_dockerfile(read_text(dockerfile), compose.service))
    if context != "." and os.path.normpath(context) == ".":
        message = f"build context {context!r} puts tests and solution into the environment"
        notes.append(_note("task-in-context", message))
    if reasons := compose.reasons_to_keep:
        placed |= _copy_other_contexts(compose, source, target)
        _write_text(target / COMPOSE, render_compose(compose))
        message = f"{COMPOSE} is kept; a Dockerfile cannot express: {', '.join(reasons)}"
        notes.append(_note("compose-kept", message))
    _copy_rest(source, target, placed)
    return notes


def _copy_context(source: Path, context: str, target: Path) -> Path | None:
    """Copy the files of a build context; return the path of the copied Dockerfile."""
    if context == ".":
        if not is_there(source / "Dockerfile"):
            return None
        return _copy(source / "Dockerfile", target / "Dockerfile")
    found = []
    for path in sorted((source / context).rglob("*")):
        if path.is_file():
            copy = _copy(path, target / path.relative_to(source / context))
            found += [copy] if copy.name == "Dockerfile" else []
    return min(found, key=lambda path: len(path.parts), default=None)


def _copy_what_it_copies(dockerfile: Path, source: Path, target: Path) -> None:
    """Copy tests and solution into the context if the Dockerfile copies them.

    Harbor's format keeps them outside of environment/.
    """
    text = read_text(dockerfile)
    for name in ("tests", "solution.sh"):
        asks = any(
            f"{word} {prefix}{name}" in text for word in ("COPY", "ADD") for prefix in ("", "./")
        )
        place = target / name
        if not asks or is_there(place) or not is_there(source / name):
            continue
        if name == "solution.sh":
            _copy(source / name, place)
        elif is_directory(source / name):
            _copy_tree(source / name, place)


def _copy_other_contexts(compose: Compose, source: Path, target: Path) -> set[str]:
    placed = set()
    for name in compose.services:
        context = compose.context_of(name)
        if name == compose.main or context == "." or not is_directory(source / context):
            continue
        if not is_there(target / context):
            _copy_tree(source / context, target / context)
        placed.add(context)
    return placed


def _copy_rest(source: Path, target: Path, placed: set[str]) -> None:
    for path in source.rglob("*"):
        relative = path.relative_to(source)
        if relative.parts[0] not in placed and not path.is_dir():
            _copy(path, target / relative)


def _write_solution(source: Path, target: Path) -> None:
    if is_there(source / "solution.sh"):
        _make_program(_copy(source / "solution.sh", target / "solution" / "solve.sh"))


def _write_tests(source: Path, target: Path) -> None:
    if is_directory(source / "tests"):
        _copy_tree(source / "tests", target)
    script = source / "run-tests.sh"
    if not is_file(script):
        raise TaskError("no run-tests.sh; an older Terminal-Bench task needs one")
    text = read_text(script)
    end = "" if text.endswith("\n") else "\n"
    test = target / "test.sh"
    _write_text(test, f"{text}{end}{_REWARD}".replace("$TEST_DIR", "/tests"))
    _make_program(test)


def _copy(path: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)
    return target


def _copy_tree(path: Path, target: Path) -> None:
    # Links are followed, as in harbor; a few links to directories can multiply without bound.
    for below in _walk(path):
        if below.is_symlink() and below.is_dir():
            where = below.relative_to(path.parent)
            raise TaskError(f"{where} is a link to a directory; expected the directory itself")
    shutil.copytree(path, target, dirs_exist_ok=True)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _make_program(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o111)


def _note(code: str, message: str) -> Diagnostic:
    return Diagnostic(code, message, is_problem=False)


def render_config(config: OldConfig) -> str:
    """Render task.toml as harbor writes it for an older task."""
    tags = "".join(f" {_render_text(tag)}," for tag in config.tags)
    estimates = {
        "estimated_duration_sec": config.estimated_duration_sec,
        "expert_time_estimate_min": config.expert_time_estimate_min,
        "junior_time_estimate_min": config.junior_time_estimate_min,
    }
    lines = [
        'schema_version = "1.3"',
        "artifacts = []",
        "\n[metadata]",
        f"author_name = {_render_text(config.author_name)}",
        f"author_email = {_render_text(config.author_email)}",
        f"difficulty = {_render_text(config.difficulty)}",
        f"category = {_render_text(config.category)}",
        f"tags = [{tags}]",
        *(
            f"{key} = {_render_number(value)}"
            for key, value in estimates.items()
            if value is not None
        ),
        f"\n[verifier]\ntimeout_sec = {_render_number(config.max_test_timeout_sec)}",
        "\n[verifier.env]",
        f"\n[agent]\ntimeout_sec = {_render_number(config.max_agent_timeout_sec)}",
        '\n[environment]\nnetwork_mode = "public"\nbuild_timeout_sec = 600.0\nos = "linux"',
        "mcp_servers = []",
        "\n[environment.env]",
        "\n[solution.env]",
    ]
    return "\n".join(lines) + "\n"


def _render_number(value: float) -> str:
    # harbor's TOML writer does not pad exponents.
    return str(value).replace("e+0", "e+").replace("e-0", "e-")


def _render_text(text: str) -> str:
    return f'"{"".join(map(_render_character, text))}"'


def _render_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
