"""config.json of jobs: the real harbor beside ours, in one process."""

import json
from typing import Any

import pytest
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ValidationError

from proctor.harbor.configs import JobConfig
from proctor.harbor.env import resolve_env, written_assignment, written_env
from proctor.job.cache import git_task_id
from proctor.job.registry import newest_version, parse_version
from tests.conformance.theirs import harbor_module

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

DOCKER: dict[str, Any] = {"environment": {"type": "docker"}}
SPECIMENS: list[dict[str, Any]] = [
    {},
    {"n_attempts": 3, "n_concurrent_trials": 1, "quiet": True, "jobs_dir": "else/where"},
    {"orchestrator": {"n_concurrent_trials": 9, "quiet": True, "retry": {"max_retries": 2}}},
    {"orchestrator": {}, "n_concurrent_trials": 2},
    {"orchestrator": None},
    {
        "agents": [
            {},
            {"import_path": "a:B", "model_name": "p/m", "kwargs": {"x": None, "y": [1.0]}},
        ]
    },
    {"agents": [{"extra_allowed_hosts": ["API.Example.com.", " packages.example.org "]}]},
    {"agents": [{"extra_allowed_hosts": ["https://packages.example.org"]}]},
    {"agents": [{"extra_allowed_hosts": [""]}]},
    {"agents": [{"extra_allowed_hosts": ["a_b.org"]}]},
    {"agents": [{"env": {"OPENAI_API_KEY": "sk-1234567890", "PASSWORD": "short", "MODE": "x"}}]},
    {"agents": [{"env": {"TOKEN": "${TOKEN}", "AUTH": "${AUTH:-none}", "KEY": "a${B}"}}]},
    {"agents": [{"env": {"N": 1}}]},
    {"agents": [{"mcp_servers": [{"name": "m", "transport": "http", "url": "u"}]}]},
    {"agents": [{"mcp_servers": [{"name": "m"}]}]},
    {"agents": [{"override_timeout_sec": 1, "max_timeout_sec": 1e-06, "skills": ["s/a"]}]},
    {"agents": []},
    {"environment": {"type": "docker", "cpu_enforcement_policy": "LIMIT"}},
    {"environment": {"type": "docker", "memory_enforcement_policy": "hard"}},
    {"environment": {"type": "Docker"}},
    {
        "environment": {
            "type": "apple-container",
            "override_tpu": {"type": "v6e", "topology": "2x4"},
        }
    },
    {"environment": {"import_path": "a:B", "env": ["A=1", " B = two ", "C=x=y"]}},
    {"environment": {"import_path": "a:B", "env": ["A"]}},
    {"environment": {"import_path": "a:B", "suppress_override_warnings": True}},
    {"environment": {"import_path": "a:B", "mounts_json": [{"type": "bind", "source": "/a"}]}},
    {
        "environment": {
            "import_path": "a:B",
            "mounts_json": [{"type": "bind", "source": "/a", "target": "/b", "more": 1}],
        }
    },
    {
        "environment": {
            "import_path": "a:B",
            "mounts": [
                {
                    "type": "volume",
                    "source": "v",
                    "target": "/v",
                    "read_only": True,
                    "volume": {"subpath": "x"},
                }
            ],
            "mounts_json": [],
        }
    },
    {"environment": {"import_path": "a:B", "mounts": [{"type": "tmpfs"}]}},
    {
        "environment": {
            "import_path": "a:B",
            "extra_docker_compose": ["c.yaml"],
            "kwargs": {"k": {}},
        }
    },
    {"verifier": {"import_path": "v:V", "kwargs": {"a": 1}, "env": {"SECRET": "abcdefghijk"}}},
    {"verifier": {"disable": True, "override_timeout_sec": 2.5}},
    {"tasks": [{"path": "a/b", "source": "s"}, {"name": "o/n", "ref": "latest"}]},
    {"tasks": [{"path": "a", "name": "o/n"}]},
    {"tasks": [{}]},
    {"tasks": [{"path": "a", "ref": "1"}]},
    {"tasks": [{"path": "a", "git_commit_id": "c"}]},
    {"tasks": [{"path": "a", "git_url": "u", "git_commit_id": "c", "overwrite": True}]},
    {"datasets": [{"path": "d", "task_names": ["a*"], "n_tasks": 2}]},
    {"datasets": [{"path": "d", "name": "n"}]},
    {"datasets": [{}]},
    {"datasets": [{"name": "n", "version": "1", "ref": "2"}]},
    {"datasets": [{"name": "n", "registry": {"url": "u", "path": "p"}}]},
    {"datasets": [{"name": "n", "registry": {"path": "p"}, "registry_path": "q"}]},
    {"datasets": [{"name": "n", "registry": "r"}]},
    {"metrics": [{}, {"type": "uv-script", "kwargs": {"script_path": "m.py"}}]},
    {"metrics": [{"type": "median"}]},
    {"retry": {"max_retries": -1}},
    {"retry": {"include_exceptions": ["B", "A", "B"], "exclude_exceptions": None}},
    {"artifacts": ["/a", {"source": "/b", "destination": "c", "exclude": ["*.o"]}]},
    {"artifacts": [{"destination": "c"}]},
    {"plugins": [{"import_path": "p:P"}], "extra_instruction_paths": ["x.md"]},
    {"plugins": [{}]},
    {"timeout_multiplier": 1, "agent_timeout_multiplier": 0.00001, "unknown": 5},
    {"timeout_multiplier": "fast"},
    {"n_attempts": 1.5},
    {"agents": [{"kwargs": {"text": "ünï\n", "deep": [{"a": None}], "big": 1e16}}]},
]


def with_defaults(specimen: dict[str, Any]) -> dict[str, Any]:
    """Harbor's default environment is not ours."""
    return {"job_name": "j", **DOCKER, **specimen}


def rendered(config: type[Any], data: dict[str, Any]) -> Any:
    """The text of a config with its sets sorted, or None where it is refused."""
    try:
        read = config.model_validate(json.loads(json.dumps(data)))
    except ValidationError:
        return None
    text = read.model_dump_json(indent=4)
    document = json.loads(text)
    for name in ("include_exceptions", "exclude_exceptions"):
        if names := document["retry"][name]:
            document["retry"][name] = sorted(names)
    return json.dumps(document, indent=4, ensure_ascii=False)


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: json.dumps(specimen)[:60])
def test_a_config_is_taken_and_written_as_harbor_does(
    specimen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567890")
    theirs = harbor_module("harbor.models.job.config").JobConfig
    assert rendered(JobConfig, with_defaults(specimen)) == rendered(theirs, with_defaults(specimen))


def test_the_text_is_harbors_to_the_byte_where_no_set_is_in_it() -> None:
    data = with_defaults({"retry": {"exclude_exceptions": None}, "timeout_multiplier": 1e-7})
    theirs: BaseModel = harbor_module("harbor.models.job.config").JobConfig.model_validate(data)
    ours = JobConfig.model_validate(data)
    assert ours.model_dump_json(indent=4) == theirs.model_dump_json(indent=4)


GOOD = [one for one in SPECIMENS if rendered(JobConfig, with_defaults(one)) is not None]


@pytest.mark.parametrize("specimen", GOOD, ids=lambda specimen: json.dumps(specimen)[:60])
def test_harbor_reads_our_config_back_as_its_own(specimen: dict[str, Any]) -> None:
    data = with_defaults(specimen)
    theirs = harbor_module("harbor.models.job.config").JobConfig
    text = JobConfig.model_validate(json.loads(json.dumps(data))).model_dump_json(indent=4)
    again = theirs.model_validate_json(theirs.model_validate(data).model_dump_json())
    assert theirs.model_validate_json(text) == again


VALUES = ("", "a", "${A}", "${A:-b}", "x${A}", "secret-value", "${NONE:-}", "12345678", "123456789")


@pytest.mark.parametrize("name", ["A", "MY_KEY", "author", "token_count", "PLAIN"])
@pytest.mark.parametrize("value", VALUES)
def test_variables_are_resolved_and_redacted_as_in_harbor(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = {"A": "of the host", "MY_KEY": "secret-value"}
    for key, text in host.items():
        monkeypatch.setenv(key, text)
    theirs = harbor_module("harbor.utils.env")
    assert resolve_env({name: value}, host) == theirs.resolve_env_vars({name: value})
    assert written_env({name: value}, host) == theirs.templatize_sensitive_env({name: value})
    given = f" {name} = {value} "
    assert written_assignment(given, host) == theirs.sanitize_env_assignment(given)


VERSIONS = (
    "1.0", "1.0.0", "v1.0", "2", "1.10", "1.9", "1.0a1", "1.0.alpha", "1.0b2", "1.0rc1", "1.0c2",
    "1.0-pre", "1.0.post1", "1.0-1", "1.0rev", "1.0.dev3", "1.0a1.dev2", "1.0.post1.dev1", "1!0.1",
    "1.0+local", "1.0+1.a", "1.0+1", "1.0+2", "1.0+10", "head", "latest", "1.0.x", "", "x",
    "2024.1", "0", "0.0", "1_0", " 1.0 ", "1.0-", "1.0+", "1..0", "1.0.POST2", "1.0+Ab.1",
    "1.0+ab_1", "٣.0",
)  # fmt: skip


@pytest.mark.parametrize("left", VERSIONS)
def test_versions_sort_as_pep_440_says(left: str) -> None:
    for right in VERSIONS:
        assert compared(parse_version(left), parse_version(right)) == compared(
            their_version(left), their_version(right)
        ), (left, right)


def their_version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def compared(left: Any, right: Any) -> str:
    if left is None or right is None:
        return f"{left is None} {right is None}"
    return "<" if left < right else ">" if left > right else "="


@pytest.mark.parametrize(
    "versions",
    [
        ["1.0", "head", "2.0"],
        ["1.9", "1.10", "zeta"],
        ["b", "a", "c"],
        ["1.0", "1.0.0"],
        ["1.0.0", "1"],
    ],
)
def test_the_newest_version_is_the_one_harbor_takes(versions: list[str]) -> None:
    theirs = harbor_module("harbor.registry.client.base").resolve_version
    assert newest_version(versions) == theirs(versions)


@pytest.mark.parametrize("commit", [None, "a" * 40])
@pytest.mark.parametrize("path", ["tasks/one", "it's", "ünï/x", "."])
@pytest.mark.parametrize("url", ["https://example.org/r.git", "git@example.org:r.git", "it's"])
def test_a_git_task_has_harbors_place_in_the_cache(url: str, path: str, commit: str | None) -> None:
    theirs = harbor_module("harbor.models.task.id").GitTaskId(
        git_url=url, git_commit_id=commit, path=path
    )
    assert (
        git_task_id(url, commit, theirs.path)
        == theirs.get_local_path().parts[-2 if theirs.path.name else -1]
    )
