"""Text of task.toml: what is ignored in it, and what is wrong with it."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.diagnostic import Diagnostic
from proctor.task.parse import ENDS_JOB, load_config, parse_config

IGNORED = """
frobnicate = 1
[metadata]
anything = 1
[agent]
timeout_secs = 3
[verifier.environment]
cpu = 1
[environment.env]
ANY = "thing"
[[environment.mcp_servers]]
name = "a"
url = "b"
port = 1
[[steps]]
name = "one"
agent.max_turns = 3
artifacts = ["x", {source = "/a", dest = "b"}]
min_reward = {any = 1}
"""


def messages(text: str) -> list[str]:
    return [found.message for found in parse_config(text).diagnostics]


def test_keys_that_nobody_reads_are_named_by_their_path() -> None:
    found = parse_config(IGNORED)
    assert found.config is not None
    assert {one.code for one in found.diagnostics} == {"unknown-key"}
    assert not any(one.is_problem for one in found.diagnostics)
    assert [one.message.split(" is not a key")[0] for one in found.diagnostics] == [
        "task.toml: frobnicate",
        "task.toml: agent.timeout_secs",
        "task.toml: verifier.environment.cpu",
        "task.toml: environment.mcp_servers[0].port",
        "task.toml: steps[0].agent.max_turns",
        "task.toml: steps[0].artifacts[1].dest",
    ]


def test_a_slip_of_the_pen_gets_a_hint() -> None:
    assert messages("[agent]\ntimeout_secs = 3\nxyz = 1") == [
        "task.toml: agent.timeout_secs is not a key that harbor knows and is ignored; "
        "did you mean timeout_sec?",
        "task.toml: agent.xyz is not a key that harbor knows and is ignored",
    ]


def test_of_very_many_ignored_keys_the_rest_is_counted() -> None:
    found = messages("".join(f"key{n} = 1\n" for n in range(150)))
    assert len(found) == 101
    assert found[-1] == "task.toml: 50 more keys are unknown to harbor and ignored"


def test_old_keys_are_noted() -> None:
    text = 'schema_version = "1"\nversion = "2"\n[environment]\nmemory = 2048\nstorage = "1G"\n'
    text += '[[steps]]\nname = "a"\nverifier.environment = {allow_internet = true}\n'
    assert messages(text) == [
        "task.toml: version is ignored, because schema_version is set too",
        "task.toml: steps[0].verifier.environment.allow_internet is an old key; use network_mode",
        "task.toml: environment.memory is ignored, because it is not text such as '2G'; "
        "use memory_mb",
        "task.toml: environment.storage is an old key; use storage_mb",
    ]


def test_what_is_no_toml_has_a_line() -> None:
    assert parse_config("a = 1\nthis is [not toml").diagnostics == (
        Diagnostic(
            "config-not-toml",
            "task.toml is not TOML: Expected '=' after a key in a key/value pair",
            line=2,
        ),
    )


def test_every_wrong_value_is_named() -> None:
    found = parse_config("agent.timeout_sec = 'soon'\nenvironment.cpus = 'two'\nsource = [1]")
    assert [one.message for one in found.diagnostics] == [
        "task.toml: agent.timeout_sec is 'soon': Input should be a valid number, unable to parse "
        "string as a number",
        "task.toml: environment.cpus is 'two': expected a number of processors, such as 2 or 0.5",
        "task.toml: source: Input should be a valid string",
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("environment.memory = 'infG'\nagent.timeout_sec = 'x'", "config-endless-size"),
        ("a = " + "1" * 5000, "config-not-parsable"),
        ("a = " + "[" * 10**5, "config-not-parsable"),
    ],
)
def test_what_ends_a_whole_job_of_harbor_comes_first(text: str, code: str) -> None:
    found = parse_config(text).diagnostics[0]
    assert found.code == code
    assert code in ENDS_JOB
    assert "harbor aborts the whole job on it" in found.message


LONG = "a." * 200_000


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG}a = 1",
        f" [ {LONG}a]",
        f"x = {{b = 1, {LONG}a = 1}}",
        f"x = {{{LONG}a = 1}}",
        "'a' . " * 100_000 + "a = 1",
        '"\\"".' * 100_000 + "a = 1",
    ],
)
def test_a_key_of_very_many_parts_is_not_waited_for(text: str) -> None:
    began = time.monotonic()
    assert [found.code for found in parse_config(text).diagnostics] == ["config-too-large"]
    assert time.monotonic() - began < 5


def test_dots_that_are_no_key_are_let_through() -> None:
    text = '[task]\nname = "a/b"\ndescription = """\nContents' + "." * 200 + "5\n"
    text += "One thing. Another. " * 100 + '\n"""\n'
    assert parse_config(text).config is not None


def test_a_long_value_is_cut_off_in_the_sentence() -> None:
    (message,) = messages(f"task.name = '{'x' * 10**5}'")
    assert len(message) < 500


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    found = parse_config(text)
    assert found.config is not None or found.diagnostics


def test_a_file_of_another_encoding_is_named_with_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_bytes(b"source = '\xe9'")
    assert load_config(path).diagnostics == (
        Diagnostic(
            "config-not-utf8",
            "task.toml is not UTF-8 (byte 0xe9 at offset 10); harbor aborts the whole job on it",
        ),
    )


def test_every_kind_of_line_end_is_one(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_bytes(b"version = '1'\rsource = 'a'\r\n[agent]\n")
    config = load_config(path).config
    assert config is not None
    assert (config.schema_version, config.source) == ("1", "a")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    os.mkfifo(path)
    (found,) = load_config(path).diagnostics
    assert str(found) == "task.toml cannot be read: it is not a regular file"


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_bytes(b"#" * (1 << 21))
    (found,) = load_config(path).diagnostics
    assert str(found) == "task.toml cannot be read: it is larger than 1 MiB"
