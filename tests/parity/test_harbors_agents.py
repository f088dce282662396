"""harbor's own agents by name: by proctor in its sandbox, and by the real harbor beside it.

terminus-2 asks a scripted model behind an endpoint on loopback; claude-code is installed from a
stub. One config for both programs.
"""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proctor.record.reasons import ReasonCode, is_known, reason_for_exception
from proctor.trial.finding import Level, worst_level
from tests.agents import model_server
from tests.agents.model_server import TOO_LONG, WRONG_KEY, Model, served, terminal_turn
from tests.cli.programs import run_here
from tests.parity import stub_claude
from tests.parity.beside import proctor, run_ours, run_theirs
from tests.parity.facts import Facts, load_facts, load_groups
from tests.parity.shared import made_once
from tests.parity.stub_claude import BROKEN, COST, LEAKY, write_claude_task
from tests.parity.theirs import Harbor
from tests.parity.trees import load_tree

pytestmark = [
    pytest.mark.skipif(
        shutil.which("tmux") is None, reason="terminus-2 needs tmux; scripts/get-packages"
    ),
    pytest.mark.skipif(
        os.geteuid() != 0, reason="the stub is built into /usr/local, and harbor's side needs root"
    ),
]

ANSWERS = [
    terminal_turn("printf 42 > answer.txt\n"),
    terminal_turn(done=True),
    # It asks whether that is sure.
    terminal_turn(done=True),
]
KEYS = f"OPENAI_API_KEY={model_server.KEY}\nANTHROPIC_API_KEY={stub_claude.KEY}\n"
NOWHERE = "http://127.0.0.1:9/v1"
"""Nobody listens on the port of `discard`."""


def terminus(model: str, endpoint: str, **kwargs: object) -> Facts:
    # No recording: that would be installed first.
    told = {"api_base": endpoint, "record_terminal_session": False, **kwargs}
    return {"name": "terminus-2", "model_name": model, "kwargs": told}


def claude(model: str, **more: object) -> Facts:
    return {"name": "claude-code", "model_name": f"anthropic/{model}", **more}


def write_job(place: Path, agents: list[Facts]) -> tuple[object, ...]:
    """A job of these agents at the task; the arguments that run it, of either program."""
    task = write_claude_task(place / "task")
    job = {"agents": agents, "tasks": [{"path": str(task)}], "n_concurrent_trials": len(agents)}
    (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
    (place / "keys.env").write_text(KEYS, encoding="utf-8")
    return "-c", place / "job.json", "--env-file", place / "keys.env"


@pytest.fixture(scope="module")
def jobs(harbor: Harbor, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same job of harbor and of proctor; not to be changed."""

    def make(place: Path) -> None:
        good, wrong = Model(ANSWERS), Model([], refusal=(401, WRONG_KEY))
        long = Model([], refusal=(400, TOO_LONG))
        with served(good), served(wrong), served(long), ThreadPoolExecutor() as both:
            agents = [
                terminus("openai/gpt-4o", good.url),
                terminus("openai/wrong-key", wrong.url),
                terminus("openai/too-long", long.url, enable_summarize=False),
                claude("claude-right", env={"ANTHROPIC_API_KEY": "${ANTHROPIC_API_KEY}"}),
                claude(BROKEN),
                claude(LEAKY),
            ]
            run = write_job(place, agents)
            ours = both.submit(run_ours, *run, "--no-gateway", jobs=place / "ours", code=3)
            theirs = both.submit(run_theirs, harbor, *run, jobs=place / "theirs")
            (place / "said.txt").write_text(ours.result().out, encoding="utf-8")
            theirs.result()

    place = made_once(tmp_path_factory, "harbors-agents", make)
    return place / "theirs" / "job", place / "ours" / "job"


def trial_of(job: Path, model: str) -> Path:
    """The trial of the agent with this model."""
    return next(
        path.parent
        for path in job.glob("*/result.json")
        if load(path)["agent_info"]["model_info"]["name"] == model
    )


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def without_times(facts: dict[str, list[Facts]]) -> dict[str, list[Facts]]:
    """The facts without how long the model's endpoint took to answer."""
    for usage in (one["usage"] for each in facts.values() for one in each):
        if usage and usage["metadata"]:
            usage["metadata"]["api_request_times_msec"] = len(
                usage["metadata"]["api_request_times_msec"]
            )
    return facts


def test_results_and_figures_are_those_of_harbor(jobs: tuple[Path, Path]) -> None:
    theirs, ours = (without_times(load_facts(job)) for job in jobs)
    assert theirs == ours
    assert [len(each) for each in ours.values()] == [3, 3]
    assert load_groups(jobs[0]) == load_groups(jobs[1])


def test_the_config_names_the_agents_as_harbors_does(jobs: tuple[Path, Path]) -> None:
    theirs, ours = (load(job / "config.json")["agents"] for job in jobs)
    assert ours == theirs
    assert (ours[0]["name"], ours[0]["import_path"]) == ("terminus-2", None)
    assert model_server.KEY not in str(ours)


@pytest.mark.parametrize("model", ["gpt-4o", "wrong-key", "too-long", "claude-right", BROKEN])
def test_a_trial_leaves_the_same_files_and_the_same_trajectory(
    jobs: tuple[Path, Path], model: str
) -> None:
    theirs, ours = (trial_of(job, model) for job in jobs)
    more = load_tree(ours).keys() - load_tree(theirs).keys()
    assert more - {"clean-room.json", "agent/proctor-output.jsonl"} == {
        "changes.jsonl",
        "findings.json",
        "record.json",
    }
    assert load_tree(theirs).keys() <= load_tree(ours).keys()
    found = [finding["code"] for finding in load(ours / "findings.json")]
    assert worst_level(found) is not Level.ALARM, found
    wrote, written = (load(trial / "agent" / "trajectory.json") for trial in (theirs, ours))
    assert wrote["final_metrics"] == written["final_metrics"]
    assert wrote["agent"] == written["agent"]
    assert [step["source"] for step in wrote["steps"]] == [s["source"] for s in written["steps"]]


@pytest.mark.parametrize(
    ("model", "revision", "figures"),
    [
        ("gpt-4o", "2.0.0 harbor==0.13.1", (3300, 33, 1800, 0.0063300000000000006)),
        ("claude-right", "1.0.18 harbor==0.13.1", (1330, 43, 700, COST)),
    ],
)
def test_the_record_has_tokens_cost_trajectory_and_revision(
    jobs: tuple[Path, Path], model: str, revision: str, figures: tuple[float, ...]
) -> None:
    record = load(trial_of(jobs[1], model) / "record.json")
    assert record["agent"]["adapter_revision"] == revision
    assert record["agent"]["model"] == model
    cost = record["cost"]
    names = ("tokens_in", "tokens_out", "cache_read_tokens", "estimated_cost_usd")
    assert tuple(cost[name] for name in names) == figures
    assert record["evaluation"]["reward"] == 1.0
    assert record["completeness"] == "complete"
    assert record["outputs"]["trajectory_path"] == "agent/trajectory.json"


@pytest.mark.parametrize(("model", "n_steps"), [("gpt-4o", 4), ("claude-right", 3)])
def test_its_record_is_shown_and_its_trajectory_is_read(
    jobs: tuple[Path, Path],
    model: str,
    n_steps: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = run_here(monkeypatch, capsys)
    trial = trial_of(jobs[1], model)
    trace = trial / "agent" / "trajectory.json"
    assert f"{n_steps} steps" in run("check", trace).out
    assert "harbor==0.13.1" in run("show", trial / "record.json").out
    assert "printf 42 > answer.txt" in run("trace", "convert", trace, "--to", "trajectory").out


@pytest.mark.parametrize(
    ("model", "exception", "scored"),
    [
        ("wrong-key", "AuthenticationError", None),
        ("too-long", "ContextLengthExceededError", None),
        (BROKEN, "NonZeroAgentExitCodeError", 0.0),
    ],
)
def test_what_goes_wrong_is_an_errored_trial_with_its_evidence(
    jobs: tuple[Path, Path], model: str, exception: str, scored: float | None
) -> None:
    trial = trial_of(jobs[1], model)
    check_errored(trial, exception)
    assert load(trial / "record.json")["evaluation"]["reward"] == scored


def check_errored(trial: Path, exception: str) -> None:
    result, record = load(trial / "result.json"), load(trial / "record.json")
    assert result["exception_info"]["exception_type"] == exception
    assert (trial / "exception.txt").read_text().count(exception)
    assert (trial / "agent" / "trajectory.json").is_file()
    assert record["evaluation"]["validity"]["errors"][0].startswith(exception)
    code = reason_for_exception(exception)
    assert code is ReasonCode.HARBOR_TRIAL_FAILED
    assert is_known(code)


def test_a_trial_that_shows_the_key_harbor_took_from_the_host_is_not_sealed(
    jobs: tuple[Path, Path],
) -> None:
    said = (jobs[1].parent.parent / "said.txt").read_text()
    leaky = trial_of(jobs[1], LEAKY)
    assert stub_claude.KEY in (leaky / "agent" / "claude-code.txt").read_text()
    assert "5 sealed" in said
    assert f"{leaky.name}" in said.partition("not sealed")[2]


def test_harbor_takes_such_a_job_of_ours_and_finds_nothing_to_do(
    harbor: Harbor, jobs: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "job"
    shutil.copytree(jobs[1], copy)
    for path in (copy / "config.json", *copy.glob("*/config.json")):
        path.write_text(path.read_text().replace(str(jobs[1].parent), str(tmp_path)))
    ran = harbor("job", "resume", "-p", copy)
    assert ran.code == 0, ran.said
    assert "6/6" in ran.said
    assert load_groups(copy) == load_groups(jobs[1])


def test_we_go_on_with_such_a_job_of_harbors(jobs: tuple[Path, Path], tmp_path: Path) -> None:
    copy = tmp_path / "job"
    shutil.copytree(jobs[0], copy)
    for path in (copy / "config.json", *copy.glob("*/config.json")):
        path.write_text(path.read_text().replace(str(jobs[0].parent), str(tmp_path)))
    gone = trial_of(copy, "claude-right")
    shutil.rmtree(gone)
    keys = dict(line.split("=") for line in KEYS.split())
    ran = proctor("resume", copy, "-q", env=keys)
    assert ran.code == 3, ran.err
    assert "kept from before: 5" in ran.out
    assert without_times(load_facts(copy)) == without_times(load_facts(jobs[0]))


@pytest.mark.soak
def test_an_endpoint_that_is_down_is_an_errored_trial(tmp_path: Path) -> None:
    run = write_job(tmp_path, [terminus("openai/gpt-4o", NOWHERE)])
    run_ours(*run, "--no-gateway", jobs=tmp_path / "ours", code=3)
    check_errored(trial_of(tmp_path / "ours" / "job", "gpt-4o"), "InternalServerError")
