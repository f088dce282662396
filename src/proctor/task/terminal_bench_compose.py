"""docker-compose.yaml of an older Terminal-Bench task, and its translation to a Dockerfile.

As in harbor's mapper: the task's own service is `client`, else the first. What a Dockerfile can
express of it is added to the Dockerfile; a compose file with more than that is kept, rewritten for
harbor. Does not touch files.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec
import yaml

from proctor.errors import TaskError

NAME = "docker-compose.yaml"

_TEST_DIR = "ENV TEST_DIR=/tests"
# Every Terminal-Bench task has these; harbor provides its own.
_OWN_VARIABLE = "TEST_DIR=${T_BENCH_TEST_DIR}"
_OWN_VOLUMES = frozenset(
    {
        "${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}",
        "${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}",
    }
)
_IN_DOCKERFILE = frozenset({"environment", "working_dir", "expose", "entrypoint", "platform"})
# Keys of the task's own service that harbor sets itself.
_REPLACED = frozenset({"build", "image", "container_name", "command", "environment", "volumes"})

_PLATFORM = re.compile(r"^(FROM\s+)--platform=\S+\s+(.+)$", re.MULTILINE)
_NO_PLATFORM = re.compile(r"^FROM\s+(?!--platform)(.+)$", re.MULTILINE)

type Scalar = str | int | float | bool | None
type Yaml = Mapping[str, Any]


class Compose(msgspec.Struct, frozen=True):
    """A compose file with at least one service."""

    data: Yaml
    """The parsed file."""
    services: Mapping[str, Yaml]
    main: str
    """Name of the task's own service."""

    @property
    def service(self) -> Yaml:
        """The task's own service."""
        return self.services[self.main]

    def context_of(self, name: str) -> str:
        """The build context of a service, relative to the task's directory.

        Raises:
            TaskError: it is not a path below the task's directory.
        """
        build = self.services[name].get("build", {})
        context = build.get("context", ".") if isinstance(build, dict) else build
        if not isinstance(build, dict | str):
            return "."
        path = PurePosixPath(context) if isinstance(context, str) else None
        if path is None or path.is_absolute() or ".." in path.parts:
            raise _bad(f"build context of service {name!r}", context, "a path below the task")
        return str(context)

    @property
    def reasons_to_keep(self) -> list[str]:
        """What a Dockerfile cannot express; if empty, the compose file can be dropped."""
        reasons = [f"{len(self.services)} services"] if len(self.services) != 1 else []
        reasons += [str(key) for key in self.data if key not in ("services", "version")]
        allowed = _IN_DOCKERFILE | _REPLACED
        reasons += [str(key) for key in self.service if key not in allowed]
        return reasons + (["volumes"] if self._has_own_volumes else [])

    @property
    def _has_own_volumes(self) -> bool:
        volumes = self.service.get("volumes", [])
        return not isinstance(volumes, list) or any(
            not isinstance(volume, str) or volume not in _OWN_VOLUMES for volume in volumes
        )


def parse_compose(data: object) -> Compose | None:
    """Validate a parsed compose file; None if it has no services.

    Raises:
        TaskError: it is not a compose file.
    """
    if not isinstance(data, dict):
        raise _bad(NAME, data, "a mapping")
    services = data.get("services", {})
    if not services:
        return None
    if not isinstance(services, dict):
        raise _bad("services", services, "a mapping")
    for name, service in services.items():
        if not isinstance(service, dict):
            raise _bad(f"service {name!r}", service, "a mapping")
    return Compose(data, services, "client" if "client" in services else next(iter(services)))


def extend_dockerfile(text: str, service: Yaml) -> str:
    """Add to a Dockerfile what the compose file says about its service."""
    if "platform" in service:
        text = _set_platform(text, _scalar("platform", service["platform"]))
    end = "" if text.endswith("\n") else "\n"
    lines = [_TEST_DIR, *_list_instructions(service)]
    return f"{text}{end}\n# Mapped from {NAME}\n" + "\n".join(lines) + "\n"


def _set_platform(text: str, platform: Scalar) -> str:
    text, count = _PLATFORM.subn(rf"\g<1>--platform={_literal(platform)} \g<2>", text)
    if count == 0:
        text = _NO_PLATFORM.sub(rf"FROM --platform={_literal(platform)} \g<1>", text)
    return text


def _literal(value: Scalar) -> str:
    # For use in a replacement of re.sub.
    return str(value).replace("\\", "\\\\")


def _list_instructions(service: Yaml) -> Iterator[str]:
    yield from _list_variables(service.get("environment"))
    if "working_dir" in service:
        directory = service["working_dir"]
        if not isinstance(directory, str):
            raise _bad("working_dir", directory, "a path")
        if "${" not in directory:
            yield f"WORKDIR {directory}"
    if "expose" in service:
        for port in _as_list(service["expose"]):
            yield f"EXPOSE {_scalar('expose', port)}"
    if "entrypoint" in service:
        words = [_scalar("entrypoint", word) for word in _as_list(service["entrypoint"])]
        yield f"ENTRYPOINT {json.dumps(words)}"


def _list_variables(environment: object) -> Iterator[str]:
    if isinstance(environment, list):
        for text in environment:
            if not isinstance(text, str):
                raise _bad("environment", text, "NAME=VALUE")
            if text != _OWN_VARIABLE:
                yield f"ENV {text}"
    elif isinstance(environment, dict):
        for name, value in environment.items():
            text = f"{name}={_scalar(f'environment.{name}', value)}"
            if text != _OWN_VARIABLE:
                yield f"ENV {text}"


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _scalar(where: str, value: object) -> Scalar:
    # YAML aliases can nest a list or mapping into itself, so its text could be endless.
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise _bad(where, value, "text or a number")


def render_compose(compose: Compose) -> str:
    """Render the compose file as harbor expects it, with what a Dockerfile cannot express."""
    kept = {key: value for key, value in compose.data.items() if key not in ("services", "version")}
    own = {
        key: value
        for key, value in compose.service.items()
        if key not in _REPLACED and key != "deploy"
    }
    others = {name: body for name, body in compose.services.items() if name != compose.main}
    text: str = yaml.safe_dump(
        {"services": {"main": {**_main_service(), **own}, **others}, **kept}, sort_keys=False
    )
    return text.replace("${T_BENCH_TASK_DOCKER_NAME_PREFIX}", "hb")


def _main_service() -> dict[str, object]:
    """The settings that harbor fills in when it starts the task's own service."""
    limits = {"cpus": "${CPUS}", "memory": "${MEMORY}"}
    return {
        "build": {"context": "${CONTEXT_DIR}"},
        "image": "${MAIN_IMAGE_NAME}",
        "command": ["sh", "-c", "sleep infinity"],
        "environment": ["TEST_DIR=${TEST_DIR}"],
        "deploy": {"resources": {"limits": limits}},
    }


def _bad(where: str, found: object, expected: str) -> TaskError:
    shown = repr(found)[:100] if isinstance(found, str | int | float) else type(found).__name__
    return TaskError(f"{NAME}: {where} is {shown}; expected {expected}")
