"""Every key and option of harbor 0.25 is accepted, or refused by its name: none is ignored."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from proctor.cli import resume, run
from proctor.cli.running.harbor_options import RESUME_OPTIONS, RUN_OPTIONS
from proctor.errors import ConfigError
from proctor.harbor.configs import JobConfig, TrialConfig
from proctor.harbor.later import JOB_KEYS
from proctor.job.config_file import load_job_config
from proctor.task.config import TaskConfig
from proctor.task.parse import LATER_KEY, parse_config
from proctor.task.table import Table
from tests.conformance.later import run_with
from tests.conformance.later_models import KEYS, Keys, list_keys, list_options

THEIRS: dict[str, Any] = json.loads(KEYS.read_text(encoding="utf-8"))
REMOVED = {"user_prompt_template_path", "acpx_config"}
"""Keys of a release between 0.13.1 and 0.25.0."""
OLD = {"environment": {"suppress_override_warnings"}}
"""Read and noted, without being a field."""
ONLY_OF_TRIALS = {"source_trial"}


@pytest.mark.soak
def test_the_list_of_keys_and_options_is_that_of_the_wheel(wheel: Path) -> None:
    assert json.loads(run_with(wheel, "-m", "tests.conformance.later_models")) == THEIRS


def find_unread(theirs: Keys, ours: Keys) -> dict[str, set[str]]:
    """The keys that our models do not have, without what is below such a key."""
    found: dict[str, set[str]] = {}
    for place, names in sorted(theirs.items()):
        if place in ours:
            found[place] = {*names} - {*ours[place]} - OLD.get(place, set())
        else:
            above, _, name = place.rpartition(".")
            assert above not in ours or name in found[above], place
    return {place: names for place, names in found.items() if names}


def test_every_key_of_a_job_is_read_or_refused() -> None:
    expected = {place: {*names} - REMOVED for place, names in JOB_KEYS.items() if names}
    assert find_unread(THEIRS["job"], list_keys(JobConfig)) == expected


def test_the_config_of_a_trial_has_the_keys_of_its_job() -> None:
    found = find_unread(THEIRS["trial"], list_keys(TrialConfig))
    assert found.pop("") - ONLY_OF_TRIALS <= JOB_KEYS[""].keys()
    for place, names in found.items():
        assert names <= JOB_KEYS[place.replace("agent", "agents")].keys(), place


def list_later(table: type[Table], data: Keys, place: str = "") -> dict[str, set[str]]:
    """The keys that our tables know as those of later releases, by place."""
    found = {place: {*table.later_keys}}
    for name, field in table.model_fields.items():
        inner = f"{place}.{name}".lstrip(".")
        if inner in data:
            for each in find_tables(field.annotation):
                found |= list_later(each, data, inner)
    return {place: names for place, names in found.items() if names}


def find_tables(annotation: Any) -> list[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return [annotation]
    parts = getattr(annotation, "__args__", ())
    return [table for part in parts for table in find_tables(part)]


def test_every_key_of_a_task_is_read_or_known_as_one_of_a_later_harbor() -> None:
    ours = list_keys(TaskConfig)
    assert find_unread(THEIRS["task"], ours) == list_later(TaskConfig, ours)


def list_accepted(command: click.Command) -> set[str]:
    return {option for each in command.params for option in (*each.opts, *each.secondary_opts)}


def test_every_option_of_run_is_accepted_or_refused_by_its_name() -> None:
    theirs = {*THEIRS["options"]["run"], *list_options("run")}
    assert theirs - list_accepted(run.command) == RUN_OPTIONS.keys()
    assert THEIRS["options"]["job start"] == THEIRS["options"]["run"]


def test_every_option_of_resume_is_accepted_or_refused_by_its_name() -> None:
    theirs = {*THEIRS["options"]["job resume"], *list_options("job", "resume")}
    assert theirs - list_accepted(resume.command) == RESUME_OPTIONS.keys()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[[verifier.collect]]\ncommand = "dump"', "verifier.collect"),
        (
            '[[steps]]\nname = "a"\nverifier.collect = [{command = "x"}]',
            "steps[0].verifier.collect",
        ),
        ('artifacts = ["/a", {source = "/b", service = "db"}]', "artifacts[1].service"),
        (
            '[[environment.mcp_servers]]\nname = "a"\nurl = "u"\nheaders = {A = "${B}"}',
            "environment.mcp_servers[0].headers",
        ),
    ],
)
def test_a_key_of_a_task_that_changes_the_run_is_noted_by_its_name(text: str, key: str) -> None:
    parsed = parse_config(text)
    assert parsed.config is not None
    (note,) = parsed.diagnostics
    assert (note.code, note.is_problem) == (LATER_KEY, False)
    assert note.message.startswith(
        f"task.toml: {key} is a key of harbor 0.25 (schema version 1.4) that proctor does not "
    )


@pytest.mark.parametrize(
    "text",
    [
        'schema_version = "1.4"\n[task]\nname = "a/b"\nversion = "2.0"',
        # harbor 0.13.1 accepts this one, and 0.25 does not.
        '[task]\nname = "a/b"\nversion = 2',
        "[verifier]\ncollect = []",
        'artifacts = [{source = "/b", service = "main"}]',
        '[[environment.mcp_servers]]\nname = "a"\nurl = "u"\nheaders = {}',
    ],
)
def test_a_key_that_changes_nothing_is_accepted(text: str) -> None:
    parsed = parse_config(text)
    assert parsed.config is not None
    assert parsed.diagnostics == ()


def test_many_unknown_keys_hide_no_later_one() -> None:
    text = "".join(f"key{n} = 1\n" for n in range(150)) + '[[verifier.collect]]\ncommand = "x"\n'
    assert parse_config(text).diagnostics[0].code == LATER_KEY


@pytest.mark.parametrize("host", ["10.0.0.0/8", "2001:db8::1", "2001:db8::/32", "*.example.org"])
def test_hosts_that_only_the_later_harbor_accepts_are_refused_as_such(
    tmp_path: Path, host: str
) -> None:
    text = f'[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["{host}"]'
    (fault,) = parse_config(text).diagnostics
    assert fault.is_problem
    assert "are accepted by harbor 0.25, and by neither harbor 0.13.1 nor proctor" in fault.message
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"agents": [{"extra_allowed_hosts": [host]}]}))
    with pytest.raises(ConfigError, match=r"accepted by harbor 0\.25"):
        load_job_config(path)


@pytest.mark.parametrize(
    "text",
    [
        '[[steps]]\nname = "a"\n[[steps]]\nname = "A"',
        '[[steps]]\nname = "con"',
        'artifacts = [{source = "/a/../b"}]',
        'artifacts = [{source = "/a", destination = "manifest.json"}]',
    ],
)
def test_what_only_the_later_harbor_refuses_is_accepted(text: str) -> None:
    assert parse_config(text).config is not None
