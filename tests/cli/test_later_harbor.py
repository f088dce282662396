"""Jobs of harbor 0.25: every command that reads a job of harbor 0.13.1 reads them too."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.audit.scoring import score_jobs
from proctor.cli.run import command
from proctor.cli.running.config import make_config
from proctor.cli.running.flags import RunFlags
from proctor.cli.viewing import find_subject
from proctor.harbor.documents import find_profile, is_trial
from proctor.harbor.job import load_job
from proctor.harbor.render import render_json
from proctor.harbor.stats import stats_document
from proctor.reward.profile import DEFAULT_PROFILE, HARBOR_0_25
from tests.audit.directories import COPIED, Document, edit_config, edit_json, find_trial, listing
from tests.cli.programs import Proctor
from tests.cli.test_import_harbor import counts_of, entries_of, files_below
from tests.exchange.trials import write_record

JOBS = Path(__file__).parent.parent / "data" / "harbor-0.25" / "jobs"
NAMES = sorted(path.name for path in JOBS.iterdir())
TRIALS = sorted(path.parent for path in JOBS.glob("*/*/result.json"))

each_job = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A copy of a job, to be changed."""
    return Path(shutil.copytree(JOBS / "binary", tmp_path / "jobs" / "binary"))


@pytest.fixture
def trial(job: Path) -> Path:
    return find_trial(job, "pass-two")


@each_job
def test_the_recomputed_stats_are_the_published_bytes(name: str) -> None:
    job = load_job(str(JOBS / name))
    assert (job.problems, job.broken, job.unfinished) == ([], [], [])
    stats = render_json(stats_document(score_jobs([job], job.profile).stats), 4, level=1)
    assert (JOBS / name / "result.json").read_text().endswith(f'"stats": {stats}\n}}')


@each_job
def test_a_job_is_scored_and_audited_by_the_rules_of_its_harbor(
    proctor: Proctor, name: str
) -> None:
    before = listing(JOBS / name)
    assert f"{name}, scored by harbor-0.25\n" in proctor("score", JOBS / name).out
    ran = proctor("audit", JOBS / name)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{JOBS / name}: the published numbers follow (harbor-0.25)\n")
    assert "no-plan" not in ran.out
    assert listing(JOBS / name) == before


def test_jobs_of_different_rules_are_scored_together_only_by_one_of_them(proctor: Proctor) -> None:
    jobs = (JOBS / "binary", COPIED / "13-single-task-adhoc")
    ran = proctor("score", *jobs, "--allow-mixed")
    assert ran.code == 2
    assert f"{jobs[0]} by harbor-0.25, {jobs[1]} by harbor-0.13.1. Pass --profile" in ran.err
    ran = proctor("score", *jobs, "--allow-mixed", "--profile", "harbor-0.13.1")
    assert "scored by harbor-0.13.1" in ran.out


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(timeout_multiplier=2.0),
        lambda config: config.update(trial_name="other"),
        lambda config: config.update(install_only=True),
        lambda config: config["agent"].update(name="nop"),
        lambda config: config["agent"].update(kwargs={"a": None}),
        lambda config: config["environment"].update(delete=False),
        lambda config: config["environment"].update(override_cpus=0),
        lambda config: config["environment"].update(kwargs={}),
        lambda config: config["environment"].update(type="docker"),
        lambda config: config["verifier"].update(max_timeout_sec=1.0),
        lambda config: config["task"].update(source=None),
    ],
)
def test_a_setting_in_only_one_of_the_two_configs_is_a_difference(
    proctor: Proctor, job: Path, trial: Path, change: Callable[[Document], object]
) -> None:
    edit_json(trial / "result.json", lambda result: change(result["config"]))
    ran = proctor("audit", job)
    assert ran.code == 1
    assert f"edited-config  {trial.name}/config.json\n" in ran.out


def test_a_table_in_a_list_may_leave_out_its_defaults_too(
    proctor: Proctor, job: Path, trial: Path
) -> None:
    server = {"name": "a", "url": "http://x"}
    artifact: Document = {"source": "/b", "destination": None, "exclude": [], "service": None}
    agent: Document = {"mcp_servers": [{**server, "transport": "sse", "command": None, "args": []}]}
    edit_json(
        trial / "config.json",
        lambda config: config.update(
            artifacts=["/a", {"source": "/b"}], agent={"name": "oracle", "mcp_servers": [server]}
        ),
    )

    def complete(result: Document) -> None:
        result["config"]["artifacts"] = ["/a", artifact]
        result["config"]["agent"].update(agent)

    edit_json(trial / "result.json", complete)
    assert proctor("audit", job).code == 0
    artifact["service"] = "db"
    edit_json(trial / "result.json", complete)
    assert "config.json differs from the config in result.json: artifacts" in (
        proctor("audit", job).out
    )


def test_a_config_is_compared_with_its_slot_in_a_plan_of_schema_3(
    proctor: Proctor, job: Path, trial: Path
) -> None:
    edit_config(trial, lambda config: config.setdefault("agent", {}).update(max_timeout_sec=1.0))
    ran = proctor("audit", job)
    assert ran.code == 1
    assert "its config differs from every slot in lock.json: agent.max_timeout_sec" in ran.out


def test_a_directory_is_a_trial_although_it_has_a_lock() -> None:
    assert all(is_trial(str(trial)) and (trial / "lock.json").exists() for trial in TRIALS)
    assert not any(is_trial(str(JOBS / name)) for name in NAMES)


def test_the_rules_of_a_lone_trial_are_found_in_the_job_around_it(job: Path, trial: Path) -> None:
    assert find_profile(str(trial)) is HARBOR_0_25
    edit_json(job / "lock.json", lambda lock: lock["harbor"].update(version="0.13.1"))
    assert find_profile(str(trial)) is DEFAULT_PROFILE
    (job / "lock.json").write_text("{")
    assert find_profile(str(trial)) is DEFAULT_PROFILE
    (job / "lock.json").unlink()
    assert find_profile(str(trial)) is DEFAULT_PROFILE


def test_every_job_is_imported_once_and_exported_byte_for_byte(
    proctor: Proctor, tmp_path: Path
) -> None:
    ledger, out = tmp_path / "ledger", tmp_path / "out"
    words = ("import", "harbor", JOBS, "--ledger", ledger, "--json")
    ran = proctor(*words)
    assert ran.code == 0, ran.err
    assert counts_of(ran) == (len(TRIALS), len(TRIALS), 0, 0, 0)
    assert counts_of(proctor(*words)) == (len(TRIALS), 0, len(TRIALS), 0, 0)
    profiles = {entry.score.profile for entry in entries_of(ledger) if entry.score}
    assert profiles == {"harbor-0.25"}
    assert proctor("export", "--format", "harbor", "-o", out, "--ledger", ledger).code == 0
    assert files_below(out) == files_below(JOBS)
    assert proctor("ledger", "verify", "--ledger", ledger).code == 0


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_every_trial_has_a_record_with_the_reward_of_its_result(
    proctor: Proctor, tmp_path: Path, trial: Path
) -> None:
    path = tmp_path / "record.json"
    write_record(trial, path)
    result = json.loads((trial / "result.json").read_text())
    rewards = (result["verifier_result"] or {}).get("rewards") or {}
    record: dict[str, Any] = json.loads(path.read_text())
    assert record["evaluation"]["reward"] == rewards.get("reward")
    assert record["environment"]["tool_versions"]["harbor"] == "0.25.0"


def test_a_trial_is_sealed_with_the_rules_of_its_harbor(proctor: Proctor, tmp_path: Path) -> None:
    trial = find_trial(JOBS / "rewards", "json-string")
    ran = proctor("ledger", "seal", trial, "--experiment", "e", "--ledger", tmp_path / "ledger")
    assert ran.code == 0, ran.err
    (entry,) = entries_of(tmp_path / "ledger")
    assert entry.score is not None
    assert entry.score.profile == "harbor-0.25"
    assert entry.reason_code == "harbor_reward_parse_error"


@each_job
def test_a_job_and_its_trials_are_shown(proctor: Proctor, name: str) -> None:
    ran = proctor("show", JOBS / name)
    assert ran.code == 0, ran.err
    for trial in sorted((JOBS / name).glob("*/result.json")):
        assert trial.parent.name in ran.out
        shown = proctor("show", trial.parent)
        assert shown.code == 0, shown.err


def test_jobs_are_reported_compared_and_summarised(proctor: Proctor, tmp_path: Path) -> None:
    for words in (
        ("report", JOBS / "binary", "-o", tmp_path / "report.html"),
        ("compare", JOBS / "binary", COPIED / "03-binary-oracle-k5", "--allow-unlike"),
        ("trace", "summary", JOBS / "multistep"),
        ("trace", "summary", TRIALS[0]),
        ("gate", JOBS / "binary", "--min-mean", "0.6", "--check-evidence"),
    ):
        ran = proctor(*words)
        assert ran.code == 0, (words, ran.out, ran.err)


def test_the_viewer_finds_the_jobs_and_not_their_trials() -> None:
    assert find_subject(str(JOBS), None).jobs == tuple(JOBS / name for name in NAMES)
    assert find_subject(str(JOBS / "binary"), None).jobs == (JOBS / "binary",)


@pytest.mark.parametrize("lost", ["", "lock.json", "result.json"])
def test_resume_refuses_the_job_and_changes_nothing(proctor: Proctor, job: Path, lost: str) -> None:
    if lost:
        (job / lost).unlink()
    before = listing(job)
    for words in (("resume", job), ("resume", job, "--dry-run")):
        ran = proctor(*words)
        assert ran.code == 2
        assert "resumes its own jobs and those of harbor 0.13" in ran.err
        assert "harbor job resume" in ran.err
    assert listing(job) == before


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("install_only: true", "install_only"),
        ("user_agent: {name: nop}", "user_agent"),
        ("extra_instructions: [be brief]", "extra_instructions"),
        ("agents: [{name: nop}, {name: nop, base_url: http://x}]", "agents[1].base_url"),
        ("agents: [{name: nop, n_concurrent: 2}]", "agents[0].n_concurrent"),
        ("environment: {stream: true}", "environment.stream"),
        ("verifier: {exclude_logs: [a]}", "verifier.exclude_logs"),
        ("artifacts: [/a, {source: /b, service: db}]", "artifacts[1].service"),
        (
            "agents: [{name: nop, mcp_servers: [{name: a, url: u, headers: {A: b}}]}]",
            "agents[0].mcp_servers[0].headers",
        ),
        (
            "environment: {mounts: [{type: bind, source: /a, target: /b, bind: {selinux: z}}]}",
            "environment.mounts[0].bind.selinux",
        ),
        ("agents: [{name: nop, secrets: [KEY]}]", "agents[0].secrets"),
        ("credential_mode: direct", "credential_mode"),
        ("acpx_config: {}\nuser_prompt_template_path: a", "user_prompt_template_path"),
    ],
)
def test_a_key_of_a_later_harbor_is_refused_by_its_name(
    proctor: Proctor, tmp_path: Path, text: str, key: str
) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(f"{text}\n")
    ran = proctor("run", "-c", config, "-p", COPIED.parent / "tasks" / "binary", "-a", "nop")
    assert ran.code == 2
    assert f"{config}: {key} is a key of harbor 0.25 that proctor does not support; " in ran.err


def test_the_config_of_a_later_job_with_nothing_but_defaults_is_accepted(
    proctor: Proctor, tmp_path: Path
) -> None:
    config = tmp_path / "job.json"
    config.write_text(
        json.dumps(
            {
                "install_only": False,
                "agents": [{"name": "nop", "skills": [], "base_url": None}],
                "artifacts": [{"source": "/a", "service": "main"}],
            }
        )
    )
    tasks = COPIED.parent / "tasks" / "binary"
    ran = proctor("run", "-c", config, "-p", tasks, "-e", "null", "--dry-run")
    assert (ran.code, ran.err) == (0, "")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A task that the tests of harbor 0.25 score after its own commands, and one for everybody."""
    tasks = tmp_path / "tasks"
    shutil.copytree(COPIED.parent / "tasks" / "binary" / "pass-simple", tasks / "plain")
    shutil.copytree(tasks / "plain", tasks / "collects")
    with (tasks / "collects" / "task.toml").open("a") as file:
        file.write('\n[[verifier.collect]]\ncommand = "dump > /logs/artifacts/state"\n')
    return tasks


def test_a_task_whose_score_needs_a_later_harbor_is_refused_and_read(
    proctor: Proctor, tasks: Path
) -> None:
    said = "verifier.collect is a key of harbor 0.25 (schema version 1.4) that proctor does not"
    alone = proctor("run", "-p", tasks / "collects", "-a", "nop", "-e", "null", "--no-ledger")
    assert (alone.code, alone.out) == (2, "")
    assert said in alone.err
    ran = proctor("run", "-p", tasks, "-a", "nop", "-e", "null", "--no-ledger", "--dry-run")
    assert ran.code == 3
    assert said in ran.out
    checked = proctor("task", "lint", tasks / "collects")
    assert checked.code == 0
    assert f"note: task.toml: {said}" in checked.out


def test_a_job_is_read_although_its_task_needs_a_later_harbor(
    proctor: Proctor, job: Path, trial: Path, tasks: Path, tmp_path: Path
) -> None:
    path = str(tasks / "collects")
    edit_json(trial / "config.json", lambda config: config["task"].update(path=path))
    edit_json(trial / "result.json", lambda result: result["config"]["task"].update(path=path))
    assert proctor("score", job).code == 0
    write_record(trial, tmp_path / "record.json")
    ran = proctor("import", "harbor", job, "--ledger", tmp_path / "ledger")
    assert ran.code == 0, ran.err


def test_headers_in_a_file_of_mcp_servers_are_refused(proctor: Proctor, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    server = {"type": "http", "url": "http://h", "headers": {"Authorization": "Bearer ${T}"}}
    file.write_text(json.dumps({"mcpServers": {"a": server}}))
    tasks = COPIED.parent / "tasks" / "binary"
    ran = proctor("run", "-p", tasks, "-a", "nop", "--mcp-config", file)
    assert ran.code == 2
    assert f"{file}: server a: headers is a key of harbor 0.25" in ran.err


@pytest.mark.parametrize("flag", ["--effort", "--effort=high", "--stream", "--upload", "--plugin"])
def test_a_flag_of_a_later_harbor_is_refused_by_its_name(proctor: Proctor, flag: str) -> None:
    ran = proctor("run", "-p", COPIED.parent / "tasks" / "binary", "-a", "nop", flag, "x")
    assert (ran.code, ran.out) == (2, "")
    name = flag.partition("=")[0]
    assert f"{name} is an option of harbor 0.25 that proctor does not have." in ran.err
    assert "Did you mean" not in ran.err


def test_a_flag_of_a_later_harbor_comes_with_what_to_use_instead(proctor: Proctor) -> None:
    ran = proctor("run", "-p", "tasks", "-a", "nop", "--base-url", "http://h")
    assert "does not have. Pass --model-endpoint PROVIDER=URL." in ran.err
    ran = proctor("resume", "-p", "jobs/a")
    assert ran.code == 2
    assert (
        "-p is an option of harbor 0.25 that proctor does not have. Write `proctor res" in ran.err
    )
    assert "No such option '--memry'. (Did you mean" in proctor("run", "--memry", "x").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-c", "a.yaml", "-c", "b.yaml"], "-c is given more than once, which only harbor 0.25"),
        (["-c", "https://example.org/a.yaml"], "-c is a URL, which only harbor 0.25 accepts"),
    ],
)
def test_configs_that_only_a_later_harbor_takes_are_refused(
    proctor: Proctor, words: list[str], said: str
) -> None:
    ran = proctor("run", *words)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-a", "nop", "--skill", "org/name@v1"], "skill org/name@v1: does not exist; expected a"),
        (["-a", "acp:opencode@1.3.9"], "there is no agent 'acp:opencode@1.3.9'"),
    ],
)
def test_skills_and_agents_that_a_later_harbor_fetches_are_refused(
    proctor: Proctor, words: list[str], said: str
) -> None:
    tasks = COPIED.parent / "tasks" / "binary"
    ran = proctor("run", "-p", tasks, *words, "-e", "null", "--no-ledger", "--dry-run")
    assert ran.code == 2
    assert said in ran.err


def test_classes_are_named_as_in_a_later_harbor() -> None:
    words = [
        "-p",
        str(COPIED.parent / "tasks" / "binary"),
        "-a",
        "m:Agent",
        "-e",
        "m:Room",
        "--verifier",
        "m:Judge",
    ]
    flags = RunFlags(**command.make_context("run", words).params)
    config = make_config(flags, datetime.now(UTC), {}, lambda _: None).config
    assert [(each.name, each.import_path) for each in config.agents] == [(None, "m:Agent")]
    assert (config.environment.type, config.environment.import_path) == (None, "m:Room")
    assert config.verifier.import_path == "m:Judge"
