"""Configs from files: what is read, what is said of what cannot be, and what is no secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import ConfigError
from proctor.job.config_file import (
    RedactedValue,
    fill_redacted,
    find_redacted,
    load_job_config,
    make_job_config,
)

YAML = """
n_attempts: 2
orchestrator: {n_concurrent_trials: 3}
agents:
  - name: nop
    env: {API_KEY: sk-0123456789}
datasets:
  - path: tasks
"""


def write(directory: Path, text: str, name: str = "job.yaml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    values = load_job_config(write(tmp_path, YAML))
    again = load_job_config(write(tmp_path, json.dumps(values), "job.json"))
    assert again == values
    assert values["n_attempts"] == 2


def test_secrets_in_a_file_are_read_as_they_are(tmp_path: Path) -> None:
    config = make_job_config({"job_name": "j", **load_job_config(write(tmp_path, YAML))}, where="-")
    assert config.agents[0].env == {"API_KEY": "sk-0123456789"}
    assert config.n_concurrent_trials == 3


def test_old_spellings_are_collected(tmp_path: Path) -> None:
    notes: list[str] = []
    path = write(tmp_path, YAML)
    load_job_config(path, notes)
    assert [note.split(" is an old key")[0] for note in notes] == [f"{path}: orchestrator"]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("job.yml", "{}", "its name ends in '.yml'; expected .yaml or .json, as harbor does"),
        ("job", "{}", "its name has no suffix; expected .yaml or .json"),
        ("job.yaml", "a: [1", "not YAML: expected ',' or ']', but got '<stream end>' in line 1"),
        ("job.yaml", "- a\n", 'holds ["a"]; expected a table of keys such as n_attempts'),
        ("job.yaml", "", "holds null; expected a table of keys"),
        ("job.yaml", "1: 2\n", "expected a table of keys"),
        ("job.yaml", "a: !!python/object:os.x {}\n", "not YAML: could not determine a constructor"),
        ("job.json", '{"a": 1', "not JSON: EOF while parsing an object at line 1 column 7"),
        ("job.json", "[]", "holds []; expected a table of keys"),
        ("job.yaml", "n_attempts: many\n", 'n_attempts is "many": Input should be a valid integer'),
        ("job.yaml", "agents: [{env: {N: 1}}]\n", "agents[0].env.N is 1: Input should be a valid"),
        ("job.yaml", "agents: [{env: {N: 1}}]\n", "valid string; write it in quotes"),
        ("job.yaml", "tasks: [{ref: x}]\n", "tasks[0]: neither path nor name"),
        ("job.yaml", "environment: {env: [A]}\n", "environment.env: 'A'; expected NAME=VALUE"),
        ("job.yaml", "environment: docker\n", 'environment is "docker": Input should be a valid'),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_key(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    path = write(tmp_path, text, name)
    with pytest.raises(ConfigError) as refused:
        load_job_config(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert sentence in str(refused.value)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file; expected a job configuration"):
        load_job_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        load_job_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin.yaml: cannot be read: 'utf-8' codec"):
        load_job_config(tmp_path / "latin.yaml")


def test_many_faults_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "tasks: [{}, {}, {}, {}, {}, {}, {}]\n")
    with pytest.raises(ConfigError, match=r"tasks\[4\].*; and 2 more faults$"):
        load_job_config(path)


def test_a_complaint_tells_no_secret(tmp_path: Path) -> None:
    path = write(tmp_path, "agents: [{env: {API_KEY: 12345}}]\n")
    with pytest.raises(ConfigError, match=r"API_KEY is a int") as refused:
        load_job_config(path)
    assert "12345" not in str(refused.value)


def read_back(values: dict[str, Any]) -> Any:
    """A config as its own file gives it back."""
    config = make_job_config({"job_name": "j", **values}, where="-")
    return make_job_config(json.loads(config.model_dump_json()), where="-")


def test_redacted_values_are_found_wherever_they_are() -> None:
    env = {"API_KEY": "sk-0123456789", "AUTH": "x", "MODE": "****"}
    config = read_back(
        {
            "agents": [{"name": "a"}, {"name": "b", "env": env}],
            "verifier": {"env": {"PASSWORD": "p"}},
            "environment": {"env": {"TOKEN": "${TOKEN}"}},
        }
    )
    assert find_redacted(config) == [
        RedactedValue("agents[1].env", "API_KEY"),
        RedactedValue("agents[1].env", "AUTH"),
        RedactedValue("verifier.env", "PASSWORD"),
    ]


def test_redacted_values_are_replaced_by_what_is_given() -> None:
    config = read_back({"agents": [{"env": {"API_KEY": "sk-0123456789", "AUTH": "x"}}]})
    filled = fill_redacted(config, {"API_KEY": "another", "MODE": "no"})
    assert filled.agents[0].env == {"API_KEY": "another", "AUTH": "****"}
    assert config.agents[0].env == {"API_KEY": "sk-0****789", "AUTH": "****"}
    assert find_redacted(filled) == [RedactedValue("agents[0].env", "AUTH")]
