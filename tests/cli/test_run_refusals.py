"""What `proctor run` refuses before anything is created, and in which words."""

import json
from pathlib import Path

import pytest

from tests.cli.programs import Proctor

TASKS = Path(__file__).parent.parent / "data" / "harbor" / "tasks" / "binary"
TASK = TASKS / "pass-simple"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no tasks; expected --path DIRECTORY"),
        (["-p", "nowhere"], "nowhere: not there; expected a task directory"),
        (["-p", "git+https://host/tasks"], "tasks of a repository run with `-d git+URL`"),
        (["-p", __file__], "a file; expected a task directory"),
        (["-p", TASKS, "-d", "x"], "--path cannot be combined with --dataset"),
        (["-p", TASKS, "-t", "a/b"], "--path cannot be combined with --task"),
        (["-p", TASK, "-l", "1"], "is one task"),
        (["-t", "noslash"], "--task is 'noslash'; expected ORG/NAME"),
        (["-d", "a@"], "--dataset is 'a@'; expected NAME or NAME@VERSION"),
        (["-d", "a/b", "--registry-path", "r"], "is a package; no registry file lists those"),
        (["-p", TASKS, "--registry-path", "r"], "require --dataset"),
        (["-d", "a", "--registry-path", "r", "--registry-url", "u"], "cannot be combined with"),
        (["-i", "x"], "they require --path or --dataset"),
        (["--task-git-url", "u"], "--task-git-url requires --path"),
        (["-p", "x", "--task-git-commit", "c"], "--task-git-commit requires --task-git-url"),
        (["-p", TASKS, "-m", "x"], "--model requires --agent"),
        (["-p", TASKS, "-a", "nop", "-m", " "], "--model is empty"),
        (
            ["-p", TASKS, "-a", "nop", "--agent-import-path", "a:B"],
            "--agent cannot be combined with",
        ),
        (
            ["-p", TASKS, "-a", "nop", "--command", "x"],
            "--command cannot be combined with another agent",
        ),
        (["-p", TASKS, "--command", "  "], "--command is empty"),
        (["-p", TASKS, "-a", "nop", "--agent-tree", "."], "--agent-tree requires --command"),
        (["-p", TASKS, "--command", "x", "--agent-tree", "no"], "no: no such directory"),
        (["-p", TASKS, "-a", "nobody"], "there is no agent 'nobody'; expected one of oracle"),
        (["-p", TASKS, "-a", "oracel"], "there is no agent 'oracel'; did you mean oracle?"),
        (["-p", TASKS], "no agent; pass --command CMD to run your own program, or -a NAME: oracle"),
        (["-p", TASKS, "--n-attempt", "2"], "Did you mean"),
        ([TASKS], f"to run these tasks, write `proctor run -p {TASKS} -a AGENT`"),
        (
            ["oracle", "-p", TASKS],
            "to run the agent oracle, write `proctor run -p TASKS -a oracle`",
        ),
        ([__file__], "--command 'python3 /installed-agent/test_run_refusals.py'`"),
        (["nothing"], "nothing is not an option value; tasks are given with -p DIRECTORY"),
        (["-p", TASKS, "--ak", "n=1"], "--ak requires an agent that takes arguments; oracle"),
        (["-p", TASKS, "-a", "nop", "--ak", "n=1"], "nop takes none"),
        (["-p", TASKS, "--ak", "n"], "--ak: n has no value; expected --ak NAME=VALUE"),
        (["-p", TASKS, "--ae", "KEY"], "KEY='${KEY}' would pass on the host's"),
        (["-p", TASKS, "--allow-agent-host", "a.org"], "the sandbox cannot allow individual hosts"),
        (["-p", TASKS, "--allow-environment-host", "a.org"], "cannot allow individual hosts"),
        (["-p", TASKS, "-a", "terminus-1"], "harbor lists this name but has no such agent"),
        pytest.param(
            ["-p", TASKS, "-a", "claude-code", "--ak", "max_turns=x"],
            "cannot parse 'x' as int",
            marks=pytest.mark.harbor,
        ),
        (
            ["-p", TASKS, "--agent-import-path", "no.such:X"],
            "the agent's module cannot be imported",
        ),
        (["-p", TASKS, "--environment-import-path", "json:X"], "json has no class 'X'"),
        (
            ["-p", TASKS, "--agent-import-path", "json:JSONDecoder"],
            "json:JSONDecoder: has no name, version, setup, run; expected an agent with harbor's "
            "interface: name, version, setup, run",
        ),
        (
            ["-p", TASKS, "--agent-import-path", "tests.cli.agents:Unwritten", "--dry-run"],
            "tests.cli.agents:Unwritten: has no run; expected an agent",
        ),
        (
            ["-p", TASKS, "--environment-import-path", "tests.cli.agents:Sleeper"],
            "tests.cli.agents:Sleeper: has no start, stop, exec, upload_file, upload_dir, "
            "download_file, download_dir, is_dir, is_file; expected an environment with harbor's",
        ),
        (
            ["-p", TASKS, "--verifier-import-path", "tests.cli.agents:Sleeper"],
            "tests.cli.agents:Sleeper: has no verify; expected a verifier with harbor's interface",
        ),
        (
            ["-p", TASKS, "-a", "nop", "--override-gpus", "1"],
            "--override-gpus 1: the sandbox has no graphics",
        ),
        (
            ["-p", TASKS, "-a", "nop", "--override-gpus", "1", "--dry-run"],
            "the sandbox has no graphics",
        ),
        (
            ["-p", TASKS, "-a", "nop", "--allow-host-port", "8000"],
            "expected ADDRESS:PORT, such as 127.0.0.1:80",
        ),
        (
            ["-p", TASKS, "-a", "nop", "--allow-host-port", "localhost:80"],
            "'localhost' is not an IP address",
        ),
        (["-p", TASKS, "-a", "nop", "--ek", "host_ports=[1]"], "expected a list of ADDRESS:PORT"),
        (
            ["-p", TASKS, "-e", "docker", "--allow-host-port", "127.0.0.1:80"],
            "--allow-host-port requires --env sandbox",
        ),
        (
            ["-p", TASKS, "-a", "nop", "--base", "gone"],
            "`proctor image pull gone` fetches it",
        ),
        (["-p", TASKS, "--verifier-import-path", "x"], "'x' names no verifier"),
        (["-p", TASKS, "--ae", "NAME"], "NAME has no value (NAME='${NAME}' would pass on"),
        (["-p", TASKS, "--ae", "sk-secret/1"], "--ae: a text without = after a name"),
        (["-p", TASKS, "--ak", "=x"], "--ak: a text without = after a name"),
        (
            ["-p", TASKS, "-a", "nop", "--ae", "A=${PROCTOR_NOT_SET}"],
            "PROCTOR_NOT_SET is not set among the host's",
        ),
        (["-p", TASKS, "--allow-agent-host", "http://x"], "--allow-agent-host is 'http://x'"),
        (["-p", TASKS, "-a", "nop", "-e", "modal"], "run: pip install 'harbor[modal]'"),
        (["-p", TASKS, "-e", "docker", "--base", "host"], "--base requires --env sandbox"),
        (
            ["-p", TASKS, "-e", "docker", "-a", "nop", "--override-gpus", "1"],
            "the docker environment has no",
        ),
        (["-p", TASKS, "-e", "docker", "-a", "nop", "--ek", "base=x"], "takes only network"),
        (
            ["-p", TASKS, "-e", "docker", "-a", "nop", "--ek", "network=none"],
            "needs a network; choose one",
        ),
        (["-p", TASKS, "-e", "nothing"], "--env is 'nothing'; expected sandbox, docker or null"),
        (["-p", TASKS, "-e", "null", "--base", "host"], "--base requires --env sandbox"),
        (["-p", TASKS, "-e", "docker", "--builder", "docker"], "--builder requires --env sandbox"),
        (["-p", TASKS, "-a", "nop", "--ek", "builder=x"], "--builder x: expected one of auto"),
        (["-p", TASKS, "--builder", "auto", "--ek", "builder=docker"], "conflict"),
        (["-p", TASKS, "--base", "a", "--ek", "base=b"], "conflict"),
        (
            ["-p", TASKS, "-e", "null", "--environment-import-path", "a:B"],
            "--env cannot be combined with",
        ),
        (["-p", TASKS, "--override-tpu", "v6e"], "expected TYPE=TOPOLOGY"),
        (["-p", TASKS, "--verifier-kwarg", "a=1"], "requires --verifier-import-path"),
        (["-p", TASKS, "--job-name", "../up"], "the job's name is '../up'"),
        (["-p", TASKS, "--job-name", ""], "the job's name is ''"),
        (["-p", TASKS, "--experiment", "a b"], "--experiment is 'a b'"),
        (["-p", TASKS, "--extra-instruction-path", "none"], "none: no such file"),
        (["-p", TASKS, "--env-file", "none"], "none: cannot be read"),
        (["-p", TASKS, "--mcp-config", "none.json", "-a", "nop"], "none.json: cannot be read"),
        (["-p", TASKS, "--mcp-config", "none.ini", "-a", "nop"], "its name ends in .ini"),
        (["-p", TASKS, "-n", "0"], "expected a whole number from 1 on, or auto"),
        (["-p", TASKS, "-n", "many"], "expected a whole number from 1 on, or auto"),
        (["-p", TASKS, "-k", "0"], "'0'; expected a whole number from 1 on"),
        (["-p", TASKS, "-r", "x"], "'x'; expected a whole number from 0 on"),
        (["-p", ""], "Invalid value for '-p' / '--path': it is empty; expected a path"),
        (["-p", TASKS, "-o", ""], "'--jobs-dir': it is empty; expected a path"),
        (
            ["-p", TASKS, "-a", "nop", "-o", __file__],
            "test_run_refusals.py: a file; expected a directory",
        ),
        (["-p", TASKS, "--timeout-multiplier", "nan"], "expected a number above 0"),
        (["-p", TASKS, "--agent-timeout-multiplier", "-1"], "expected a number above 0"),
        (["-p", TASKS, "--json", "--result-line"], "--json cannot be combined with --result-line"),
        (["-p", TASKS, "--plugin", "a:B"], "is an option of harbor 0.25"),
        (["-p", TASKS, "--upload"], "is an option of harbor 0.25"),
        (["-p", TASKS, "--mounts", "[]"], "is an option of harbor 0.25"),
        (["-p", TASKS, "--extra-docker-compose", "x"], "is an option of harbor 0.25"),
        (["-c", "none.yaml"], "none.yaml: no such file"),
        (["-c", "none.toml"], "none.toml"),
    ],
    ids=lambda value: " ".join(map(str, value[-2:]))[:40] if isinstance(value, list) else "",
)
def test_bad_use_is_a_sentence_and_nothing_is_created(
    proctor: Proctor, tmp_path: Path, arguments: list[object], said: str
) -> None:
    ran = proctor("run", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())
    assert "Traceback" not in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("./agent.py", "--agent-tree . --command 'python3 /installed-agent/agent.py'"),
        ("./mine/run", "--agent-tree mine --command /installed-agent/run"),
        ("mine/run --fast", "--agent-tree mine --command '/installed-agent/run --fast'"),
        ("python3 agent.py", "--agent-tree . --command 'python3 /installed-agent/agent.py'"),
        ("cd /app && bash agent.py", "--command 'cd /app && bash /installed-agent/agent.py'"),
        ("{here}/mine/run", "--agent-tree mine --command /installed-agent/run"),
    ],
)
def test_a_command_that_names_a_file_of_this_machine_is_told_how_to_copy_it(
    proctor: Proctor, tmp_path: Path, command: str, options: str
) -> None:
    (tmp_path / "agent.py").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run").touch(0o755)
    ran = proctor("run", "-p", TASKS, "--command", command.format(here=tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert "a file of this machine, but it runs inside the task's environment" in ran.err
    assert options in ran.err


@pytest.mark.process  # git, which pins the files that a command names
@pytest.mark.parametrize(
    "command",
    [
        "my-agent > log.txt",
        "my-agent >> ./log.txt",
        "cat log.txt | my-agent",
        "/usr/bin/env my-agent",
        "my-agent 'an unclosed quote",
        "/installed-agent/log.txt",
    ],
)
def test_a_command_may_name_files_of_its_environment(
    proctor: Proctor, tmp_path: Path, command: str
) -> None:
    (tmp_path / "log.txt").touch()
    ran = proctor("run", "-p", TASK, "--command", command, "--no-ledger", "--dry-run")
    assert (ran.code, ran.err) == (0, "")


def test_an_agent_that_is_a_file_is_told_to_be_a_command(proctor: Proctor, tmp_path: Path) -> None:
    (tmp_path / "agent.sh").touch()
    ran = proctor("run", "-p", TASKS, "-a", "./agent.sh")
    assert ran.code == 2
    assert "--agent-tree . --command 'bash /installed-agent/agent.sh'" in ran.err


def test_a_refused_job_has_a_result_line_if_one_was_asked_for(proctor: Proctor) -> None:
    ran = proctor("run", "-p", "nowhere", "-a", "nop", "--result-line")
    assert ran.code == 2
    line = json.loads(ran.out.removeprefix("BASE_BENCHMARK_RESULT="))
    assert (line["status"], line["reason_code"]) == ("failed", "harbor_result_missing")


@pytest.mark.sandbox
def test_a_config_without_agents_is_asked_for_one(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"tasks": [{"path": str(TASK)}]}))
    ran = proctor("run", "-c", path, "--no-ledger", "--dry-run")
    assert (ran.code, "no agent; pass --command CMD" in ran.err) == (2, True)
    path.write_text(json.dumps({"tasks": [{"path": str(TASK)}], "agents": [{"name": "nop"}]}))
    assert proctor("run", "-c", path, "--no-ledger", "--dry-run").code == 0


def test_a_key_that_nobody_reads_is_said_also_where_there_are_no_tasks(
    proctor: Proctor, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("dataset: [{path: x}]")
    ran = proctor("run", "-c", path)
    assert ran.code == 2
    assert ran.err.startswith(f"note: {path}: dataset is not a key of a job config; ignored\n")
    assert "no tasks; expected" in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n_attempts: many", "n_attempts is"),
        ("a: [", "not YAML"),
        ("- 1", "expected a table of keys"),
        ("agents: [{name: nop}]", "no tasks; expected"),
        ("tasks: [{path: x, name: a/b}]", "both path and name"),
        ("plugins: [{import_path: 'a:B'}]", "plugins: not supported"),
        ("n_attempts: 0", "n_attempts is 0"),
        (
            "environment: {type: docker, extra_docker_compose: [x]}",
            "compose: not supported by the docker env",
        ),
        (
            "environment: {extra_docker_compose: [x]}",
            "environment.extra_docker_compose: not supported by the sand",
        ),
        ("agents: [{name: nop, env: {A_KEY: 'abcd****xyz'}}]", "the values of A_KEY were left out"),
    ],
)
def test_a_bad_config_file_is_named_with_its_fault(
    proctor: Proctor, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    ran = proctor("run", "-c", path, *(["-p", TASKS] if "no tasks" not in said else []))
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.sandbox
def test_keys_that_nobody_reads_are_named(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("n_attemps: 3\nretry: {max: 1}\nagents: [{nam: nop}]\n")
    err = proctor("run", "-c", path, "-p", TASKS, "--dry-run").err
    for key in ("n_attemps", "retry.max", "agents.nam"):
        assert f"{path}: {key} is not a key of a job config; ignored" in err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/installed-agent/a.py --fast", "--command 'python3 /installed-agent/a.py --fast'"),
        (
            "KEY=1 exec /installed-agent/a.py",
            "--command 'KEY=1 exec python3 /installed-agent/a.py'",
        ),
        ("cd /installed-agent && ./a.py", "--command 'cd /installed-agent && python3 ./a.py'"),
        ("/installed-agent/b.py", "/agent/b.py; expected a file of the agent's directory"),
    ],
)
def test_a_program_that_cannot_be_executed_is_refused_before_the_first_trial(
    proctor: Proctor, tmp_path: Path, command: str, said: str
) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "a.py").write_text("#!/usr/bin/env python3\n")
    ran = proctor("run", "-p", TASK, "--agent-tree", "agent", "--command", command)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "b.py" in command or f"`chmod +x {tmp_path}/agent/a.py`" in ran.err
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    "command",
    [
        "python3 /installed-agent/a.py",
        "make -C /installed-agent && /installed-agent/built",
        "$HOME/a.py",
        "/installed-agent/run.sh",
    ],
)
@pytest.mark.sandbox
def test_a_program_that_may_run_is_not_refused(
    proctor: Proctor, tmp_path: Path, command: str
) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "a.py").write_text("")
    (tmp_path / "agent" / "run.sh").write_text("")
    (tmp_path / "agent" / "run.sh").chmod(0o755)
    arguments = ("--agent-tree", "agent", "--command", command, "--dry-run")
    assert proctor("run", "-p", TASK, *arguments).code == 0


@pytest.mark.parametrize("option", [("--max-cost", 1), ("--max-job-cost", 9)])
def test_a_limit_that_no_agent_would_heed_is_refused(
    proctor: Proctor, tmp_path: Path, option: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for agent in (("-a", "oracle"), ("--command", "true", "-m", "gpt-4o")):
        ran = proctor("run", "-p", TASKS, *agent, *option)
        assert (ran.code, ran.out) == (2, "")
        assert "this job has none; name a model (-m)" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("{dataset_id: ' '}", "dataset_id is blank; expected name@version"),
        ("{system_prompt: none}", "none: no such file; expected the agent's system prompt"),
        ("{adaptation: {family_id: a}}", "job.yaml: proctor: adaptation.seed_task_id: "),
        ("{task_order: random}", 'job.yaml: proctor: task_order is "random"'),
        ("{strict_task: true}", "job.yaml: proctor: strict_task is not a setting"),
        ("{models: {job_limits: {token: 9}}}", "models.job_limits.token is not a setting"),
        (
            "{models: {job_limits: {tokens: 0}}}",
            "models.job_limits.tokens is a int: Input should be greater",
        ),
        ("[strict_tasks]", 'job.yaml: proctor is ["strict_tasks"]; expected a table'),
    ],
)
def test_settings_of_a_job_file_are_checked(
    proctor: Proctor, tmp_path: Path, settings: str, said: str
) -> None:
    (tmp_path / "job.yaml").write_text(f"proctor: {settings}\n")
    ran = proctor("run", "-p", TASKS, "-a", "nop", "-e", "null", "-c", tmp_path / "job.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
