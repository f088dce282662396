"""The flags of `proctor run` make the job that harbor's own command line makes of them."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.run import command
from proctor.cli.running.config import make_config
from proctor.cli.running.files import parse_env_file
from proctor.cli.running.flags import RunFlags
from proctor.errors import InputError
from proctor.job.mcp_file import load_mcp_servers
from tests.conformance.theirs import harbor_module

TASKS = Path(__file__).parent.parent / "data" / "harbor" / "tasks" / "binary"
TASK = TASKS / "pass-simple"
NOW = datetime(2026, 11, 15, 10, tzinfo=UTC)

type Parse = Callable[[Sequence[object]], dict[str, Any]]


class SeenError(Exception):
    """harbor's parser is done."""


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Parse:
    """What harbor makes of a command line, before anything is run."""
    jobs = harbor_module("harbor.cli.jobs")
    app = harbor_module("typer").Typer()
    app.command()(jobs.start)
    found: list[Any] = []

    async def create(config: Any) -> None:
        found.append(config)
        raise SeenError

    monkeypatch.setattr(harbor_module("harbor.job").Job, "create", create)
    factory = harbor_module("harbor.environments.factory").EnvironmentFactory
    monkeypatch.setattr(factory, "run_preflight", lambda **_: None)
    monkeypatch.setattr(jobs, "show_registry_hint_if_first_run", lambda _: None)

    def parse(arguments: Sequence[object]) -> dict[str, Any]:
        runner = harbor_module("typer.testing").CliRunner()
        result = runner.invoke(app, list(map(str, arguments)))
        assert isinstance(result.exception, SeenError), (result.output, result.exception)
        return comparable(found.pop())

    return parse


def ours(arguments: Sequence[object]) -> dict[str, Any]:
    """What proctor makes of a command line."""
    context = command.make_context("run", list(map(str, arguments)))
    notes: list[str] = []
    return comparable(make_config(RunFlags(**context.params), NOW, {}, notes.append).config)


def comparable(config: Any) -> dict[str, Any]:
    """A config as plain values, without what differs by design: the time, the environment."""
    values: dict[str, Any] = json.loads(config.model_dump_json())
    del values["job_name"]
    for name in ("type", "import_path"):
        del values["environment"][name]
    for names in ("include_exceptions", "exclude_exceptions"):
        if values["retry"][names] is not None:
            values["retry"][names].sort()
    return values


LINES: list[list[object]] = [
    ["-p", TASKS],
    ["-p", TASK],
    ["--path", TASKS, "-i", "pass-*", "-i", "x", "-x", "*-two", "-l", "3"],
    ["-d", "bench@1.0", "--registry-path", "registry.json", "-l", "2"],
    ["-d", "bench", "--registry-url", "http://example.invalid/r.json", "-x", "a"],
    ["-d", "org/bench@3", "-i", "a*"],
    ["-d", "org/bench"],
    ["-t", "org/task"],
    ["-t", "org/task@sha256:ab"],
    ["-p", TASKS, "-a", "nop", "-m", "p/one", "-m", "two"],
    ["-p", TASKS, "--agent-import-path", "a.b:C", "--ak", "n=3", "--ak", "t=text", "--ak", "l=[1]"],
    [
        "-p",
        TASKS,
        "--agent-import-path",
        "a.b:C",
        "--ak",
        "a=True",
        "--ak",
        "b=None",
        "--ak",
        "c=true",
        "--ak",
        "d= x ",
    ],
    [
        "-p",
        TASKS,
        "--agent-import-path",
        "a:C",
        "--ak",
        'a={"b": 1}',
        "--ak",
        "e=a=b",
        "--ak",
        "f=",
    ],
    [
        "-p",
        TASKS,
        "-a",
        "oracle",
        "--ae",
        "A=1",
        "--ae",
        "B=x=y",
        "--ae",
        "API_KEY=longsecretvalue",
    ],
    ["-p", TASKS, "--ae", "A=${B}", "--skill", "s", "--skills", "t"],
    ["-p", TASKS, "--allow-agent-host", "a.b", "--environment-import-path", "a:B"],
    [
        "-p",
        TASKS,
        "-k",
        "5",
        "-n",
        "7",
        "-r",
        "2",
        "-o",
        "out",
        "--artifact",
        "/a",
        "--artifact",
        "b",
    ],
    ["-p", TASKS, "--retry-include", "A", "--retry-include", "B", "--retry-exclude", "C"],
    ["-p", TASKS, "--timeout-multiplier", "2", "--agent-timeout-multiplier", "0.5"],
    ["-p", TASKS, "--verifier-timeout-multiplier", "3", "--agent-setup-timeout-multiplier", "4"],
    ["-p", TASKS, "--environment-build-timeout-multiplier", "1.5", "-q", "--debug"],
    ["-p", TASKS, "--force-build", "--no-delete", "--cpus", "limit", "--memory", "ignore"],
    ["-p", TASKS, "--no-force-build", "--delete", "--override-cpus", "2"],
    [
        "-p",
        TASKS,
        "--override-memory-mb",
        "64",
        "--override-storage-mb",
        "9",
        "--override-gpus",
        "1",
    ],
    ["-p", TASKS, "--override-tpu", " v6e = 2x4 ", "--ek", "a=1", "--environment-kwarg", "b=c"],
    ["-p", TASKS, "--allow-environment-host", "example.com", "--environment-import-path", "a:B"],
    ["-p", TASKS, "--ve", "A=1", "--verifier-import-path", "a:B", "--verifier-kwarg", "k=2"],
    ["-p", TASKS, "--disable-verification", "--extra-instruction-path", __file__],
    ["-p", TASKS, "--enable-verification"],
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(map(str, line[2:]))[:60])
def test_a_command_line_makes_the_same_job(theirs: Parse, line: list[object]) -> None:
    assert ours(line) == theirs(line)


CONFIG = """
job_name: nightly
n_attempts: 3
n_concurrent_trials: 2
timeout_multiplier: 1.5
agents:
  - import_path: a.b:D
    model_name: p/m
    kwargs: {a: 1, b: 2}
    env: {X: y}
  - import_path: a.b:C
environment: {import_path: "e:E", kwargs: {k: v}, cpu_enforcement_policy: LIMIT}
verifier: {env: {V: w}, disable: true}
retry: {max_retries: 4}
metrics: [{type: max}]
artifacts: [/a, {source: /b, destination: c}]
datasets: [{path: there, n_tasks: 2}]
"""
OLD = """
orchestrator: {n_concurrent_trials: 9, quiet: true, retry: {max_retries: 2}}
environment: {import_path: "e:E", env: [A=1, "B = 2"]}
datasets: [{name: bench, version: "1", registry: {path: r.json}}]
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("text", [CONFIG, OLD], ids=["today's", "old"])
@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-a", "oracle"],
        ["-a", "oracle", "-m", "x", "-m", "y", "--ae", "Z=1"],
        ["--ae", "X=z", "--skill", "s", "--allow-agent-host", "h"],
        ["-k", "1", "-n", "8", "-r", "0", "--ek", "k=w", "--ve", "V=x"],
        ["-p", str(TASKS), "--artifact", "/z"],
        ["-p", str(TASK), "--timeout-multiplier", "3"],
        ["-d", "other@2"],
        ["-t", "org/task"],
    ],
    ids=lambda flags: " ".join(flags[:1]) or "none",
)
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_flags_override_a_config_file_as_in_harbor(
    theirs: Parse, tmp_path: Path, text: str, flags: list[str], suffix: str
) -> None:
    path = tmp_path / f"job{suffix}"
    values = harbor_module("yaml").safe_load(text)
    path.write_text(text if suffix == ".yaml" else json.dumps(values))
    line = ["-c", path, *flags]
    assert ours(line) == theirs(line)


def test_arguments_are_added_to_each_agent_of_a_file(theirs: Parse, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(CONFIG)
    line = ["-c", path, "--ak", "b=3"]
    assert ours(line) == theirs(line)


SERVERS = {
    "claude.json": '{"mcpServers": {"a": {"command": "x", "args": ["1"], "env": {"K": "v"}}, '
    '"b": {"type": "http", "url": "http://h"}}}',
    "table.toml": '[[environment.mcp_servers]]\nname = "a"\ntransport = "stdio"\ncommand = "c"\n',
    "list.yaml": "mcp_servers:\n  - {name: a, url: http://h}\n  - {name: b, type: http, url: u}\n",
}


@pytest.mark.parametrize("name", SERVERS)
def test_mcp_servers_are_read_as_in_harbor(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(SERVERS[name])
    expected = harbor_module("harbor.cli.utils").load_mcp_servers(path)
    found = load_mcp_servers(path)
    assert [s.model_dump(mode="json") for s in found] == [
        s.model_dump(mode="json") for s in expected
    ]


ENV_FILES = [
    "A=1\nB=two words\nexport C=3\n",
    "# comment\n\n  A = spaced  # trailing\nB=#no comment\nC= # empty\n",
    'A=\'single ${HOME} \\\' \\n\'\nB="double\\n\\t\\"q\\" ${A}"\n',
    "A=1\nB=${A}-${NOPE:-d}-${NOPE}-$A\nA=2\nC=${A}\n",
    "A=\"several\nlines\"\nB='more\nlines'\r\nC=x\r\n",
    "'quoted name'=1\nALONE\nA==x\nB=a#b\nC=a #b\n",
    "\ufeffA=1",
    "A=\nB=''\nC=\"\"\n",
]


@pytest.mark.parametrize("text", ENV_FILES)
def test_an_env_file_is_read_as_in_harbor(tmp_path: Path, text: str) -> None:
    host = {"HOME": "/h"}
    dotenv = harbor_module("dotenv.main")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", dict(host))
        path = tmp_path / "env"
        path.write_bytes(text.encode())
        expected = dotenv.DotEnv(path, encoding="utf-8").dict()
    assert parse_env_file(text, host, "env") == {
        name: value for name, value in expected.items() if value is not None
    }


@pytest.mark.parametrize("text", ["A=1\n=2\n", "A='never closed\nB=1\n", 'A="x" y\n'])
def test_a_line_that_harbor_would_pass_over_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"env:\d: not a variable; expected NAME=VALUE"):
        parse_env_file(text, {}, "env")
