"""What people write in a job's config, and what is said of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proctor.harbor.configs import (
    NULL,
    SANDBOX,
    DatasetConfig,
    EnvironmentConfig,
    JobConfig,
    RetryConfig,
    TaskConfig,
)
from proctor.harbor.env import is_redacted, is_sensitive, is_template, resolve_env, written_env


def read(values: dict[str, Any]) -> tuple[JobConfig, list[str]]:
    notes: list[str] = []
    return JobConfig.model_validate({"job_name": "j", **values}, context=notes), notes


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (
            {"orchestrator": {"n_concurrent_trials": 7, "retry": {"max_retries": 2}}},
            "orchestrator is an old key: n_concurrent_trials, quiet and retry stand by themselves",
        ),
        (
            {"datasets": [{"name": "d", "registry": {"path": "r.json"}}]},
            "datasets: registry is the old spelling of registry_url and registry_path",
        ),
        (
            {"environment": {"mounts_json": []}},
            "environment.mounts_json is the old spelling of environment.mounts",
        ),
        (
            {"environment": {"suppress_override_warnings": True}},
            "environment.suppress_override_warnings has no effect any more",
        ),
        (
            {"environment": {"env": ["A=1"]}},
            "environment.env is a list; harbor asks for a table of names and values instead",
        ),
    ],
)
def test_an_old_spelling_is_taken_and_noted(values: dict[str, Any], note: str) -> None:
    before = json.dumps(values)
    _, notes = read(values)
    assert notes == [note]
    assert json.dumps(values) == before


def test_nothing_is_noted_of_the_spellings_of_today() -> None:
    _, notes = read({"n_concurrent_trials": 2, "environment": {"env": {"A": "1"}}})
    assert notes == []


def test_old_keys_give_way_to_those_of_today() -> None:
    config, _ = read({"orchestrator": {"n_concurrent_trials": 7}, "n_concurrent_trials": 2})
    assert config.n_concurrent_trials == 2
    config, _ = read({"orchestrator": {"retry": {"max_retries": 3}, "quiet": True}})
    assert (config.retry.max_retries, config.quiet) == (3, True)


@pytest.mark.parametrize(("name", "path"), [("sandbox", SANDBOX), ("null", NULL)])
def test_an_environment_of_ours_has_its_import_path_in_files(name: str, path: str) -> None:
    config = EnvironmentConfig.model_validate({"type": name})
    assert (config.type, config.import_path) == (None, path)


def test_without_a_word_the_environment_is_the_sandbox() -> None:
    assert EnvironmentConfig().import_path == SANDBOX


@pytest.mark.parametrize(
    ("model", "values", "sentence"),
    [
        (TaskConfig, {}, "neither path nor name; expected one of them"),
        (TaskConfig, {"path": "a", "name": "o/n"}, "both path and name; expected one of them"),
        (TaskConfig, {"path": "a", "ref": "1"}, "ref requires name"),
        (TaskConfig, {"path": "a", "git_commit_id": "c"}, "git_commit_id requires git_url"),
        (TaskConfig, {"name": "o/n", "git_url": "u"}, "git_url requires path"),
        (TaskConfig, {"name": "plain"}, "name is 'plain'; expected a package, organisation/name"),
        (DatasetConfig, {}, "neither path nor name; expected one of them"),
        (DatasetConfig, {"name": "n", "version": "1", "ref": "2"}, "both version and ref"),
        (EnvironmentConfig, {"env": ["A"]}, "'A'; expected NAME=VALUE"),
        (EnvironmentConfig, {"type": "vm"}, "Input should be 'docker'"),
        (EnvironmentConfig, {"extra_allowed_hosts": ["a:1"]}, "expected a host name without"),
        (EnvironmentConfig, {"mounts": [{"type": "bind"}]}, "Field required"),
        (RetryConfig, {"max_retries": -1}, "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    model: type[TaskConfig], values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        model.model_validate(values)


def test_enforcement_policies_and_hosts_may_be_in_any_case() -> None:
    config = EnvironmentConfig.model_validate(
        {"cpu_enforcement_policy": "Limit", "extra_allowed_hosts": ["Packages.Example.org."]}
    )
    assert config.cpu_enforcement_policy == "limit"
    assert config.extra_allowed_hosts == ["packages.example.org"]


def test_sets_are_written_in_order() -> None:
    written = json.loads(RetryConfig(include_exceptions={"b", "a", "c"}).model_dump_json())
    assert written["include_exceptions"] == ["a", "b", "c"]
    assert written["exclude_exceptions"] == sorted(written["exclude_exceptions"])
    assert RetryConfig(exclude_exceptions=None).model_dump()["exclude_exceptions"] is None


def test_a_secret_is_written_as_a_name_or_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "on-the-host")
    env = {"MY_TOKEN": "on-the-host", "API_KEY": "sk-0123456789", "AUTH": "short", "MODE": "fast"}
    config, _ = read({"agents": [{"env": env}], "verifier": {"env": env}})
    written = json.loads(config.model_dump_json())
    expected = {"MY_TOKEN": "${MY_TOKEN}", "API_KEY": "sk-0****789", "AUTH": "****", "MODE": "fast"}
    assert written["agents"][0]["env"] == written["verifier"]["env"] == expected
    assert config.agents[0].env == env


def test_what_was_redacted_is_seen_to_be() -> None:
    for secret in ("x", "12345678", "123456789", "sk-" + "a" * 40, "new\nline-and-more"):
        assert is_redacted(written_env({"KEY": secret}, {})["KEY"])
    for value in ("", "***", "*****", "sk-0123456789", "${KEY}", "a****b"):
        assert not is_redacted(value)


def test_a_template_is_a_whole_value() -> None:
    assert is_template("${A}")
    assert is_template("${A:-}")
    assert not is_template("x${A}")
    assert resolve_env({"A": "${X:-y}", "B": "${X}z"}, {}) == {"A": "y", "B": "${X}z"}
    with pytest.raises(ValueError, match="Environment variable 'X' not found in host environment"):
        resolve_env({"A": "${X}"}, {})


def test_names_of_secrets_are_known_in_any_case() -> None:
    assert is_sensitive("openai_api_key")
    assert is_sensitive("Author")
    assert not is_sensitive("MODE")


def test_paths_stay_as_they_were_given() -> None:
    config, _ = read({"tasks": [{"path": "./a/../b"}], "jobs_dir": "~/jobs"})
    assert config.tasks[0].path == Path("a/../b")
    assert json.loads(config.model_dump_json())["jobs_dir"] == "~/jobs"
