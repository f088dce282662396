"""Skills that a job provides to its agents: directories with a SKILL.md, and their digests.

A path is one skill, or a directory that contains only skills. Of two skills with one name the later
counts. Does not copy skills.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from proctor.digest import sha256_file, sha256_hex
from proctor.errors import ConfigError
from proctor.sentence import reason_of

_SIGN = "SKILL.md"


class Skill(msgspec.Struct, frozen=True):
    """One skill."""

    name: str
    """The name of its directory, under which the agent finds it."""
    source: Path
    """The directory on the host."""
    digest: str
    """`sha256:…` over names and contents of its files."""


def load_skills(paths: Iterable[Path]) -> tuple[Skill, ...]:
    """Load and hash the skills at these paths, sorted by name.

    Raises:
        ConfigError: a path is neither a skill nor a directory of skills, or cannot be read.
    """
    found: dict[str, Path] = {}
    for path in paths:
        try:
            found |= {skill.name: skill for skill in _find_skills(path)}
        except OSError as error:
            raise ConfigError(f"skill {path}: cannot be read: {reason_of(error)}") from error
    return tuple(Skill(name, found[name], skill_digest(found[name])) for name in sorted(found))


def skill_digest(directory: Path) -> str:
    """The digest of a skill in lock.json.

    Raises:
        ConfigError: a file of it cannot be read.
    """
    parts: list[str] = []
    try:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            parts += [path.relative_to(directory).as_posix(), sha256_file(path)]
        return f"sha256:{sha256_hex(''.join(f'{part}\0' for part in parts).encode())}"
    except OSError as error:
        raise ConfigError(f"skill {directory}: cannot be read: {reason_of(error)}") from error
    except UnicodeEncodeError as error:
        raise ConfigError(f"skill {directory}: has a file whose name is not UTF-8") from error


def _find_skills(path: Path) -> Sequence[Path]:
    place = path.expanduser()
    if not place.is_dir():
        found = "is a file" if place.exists() else "does not exist"
        raise ConfigError(f"skill {path}: {found}; expected a directory with a {_SIGN}")
    if (place / _SIGN).is_file():
        return [Path(os.path.realpath(place))]
    children = sorted(
        child for child in place.iterdir() if child.is_dir() and not child.name.startswith(".")
    )
    without = [child.name for child in children if not (child / _SIGN).is_file()]
    if without or not children:
        found = f"{', '.join(without)} has none" if without else "there is no directory in it"
        raise ConfigError(
            f"skill {path}: no {_SIGN} in it, and {found}; expected a skill, or a directory of "
            "skills alone"
        )
    return [Path(os.path.realpath(child)) for child in children]
