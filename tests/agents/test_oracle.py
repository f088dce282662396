"""The oracle runs the task's own solution; beside harbor's it stands in the conformance suite."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.kinds import OracleAgent
from proctor.harbor.configs import AgentConfig
from proctor.task.directory import Task, load_task
from proctor.trial.agent import AgentContext
from tests.agents.places import Place, make_place, order_for
from tests.task.trees import make_steps, make_task, write


def oracle(place: Place, task: Task | None = None, **wishes: Any) -> OracleAgent:
    return OracleAgent(order_for(place, AgentConfig(name="oracle"), task, **wishes))


def run(agent: OracleAgent, place: Place) -> None:
    asyncio.run(agent.run("Do it.", place, AgentContext()))


def solved_by(root: Path, script: str, config: str = "") -> Task:
    changes = {"solution/solve.sh": f"#!/bin/bash\n{script}\n"}
    return load_task(make_task(root / "task", config, **changes))


@pytest.mark.parametrize("mounted", [True, False])
def test_what_the_solution_prints_is_in_the_agents_logs(tmp_path: Path, mounted: bool) -> None:
    place = make_place(tmp_path, mounted=mounted)
    run(oracle(place, solved_by(tmp_path, "echo out; echo err >&2")), place)
    assert place.inside("/logs/agent/oracle.txt").read_text() == "out\nerr\n"
    assert not (place.trial_paths.agent_dir / "exit-code.txt").exists()


@pytest.mark.parametrize("mounted", [True, False])
def test_a_failing_solution_leaves_its_exit_code_and_raises_nothing(
    tmp_path: Path, mounted: bool
) -> None:
    place = make_place(tmp_path, mounted=mounted)
    run(oracle(place, solved_by(tmp_path, "exit 7")), place)
    assert (place.trial_paths.agent_dir / "exit-code.txt").read_text() == "7"


def test_a_link_in_place_of_the_exit_code_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place = make_place(tmp_path, mounted=True)
    script = f"ln -s {victim} $ROOT/logs/agent/exit-code.txt; exit 1"
    run(oracle(place, solved_by(tmp_path, script)), place)
    assert victim.read_text() == "precious"
    assert (place.trial_paths.agent_dir / "exit-code.txt").read_text() == "1"


def test_variables_of_the_solution_win_over_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ON_THE_HOST", "host")
    config = '[solution.env]\nA = "solution"\nC = "${ON_THE_HOST}"\nD = "${NOWHERE:-default}"\n'
    place = make_place(tmp_path)
    task = solved_by(tmp_path, "echo $DEBIAN_FRONTEND $A $B $C $D", config)
    run(oracle(place, task, extra_env={"A": "job", "B": "job"}), place)
    printed = place.inside("/logs/agent/oracle.txt").read_text()
    assert printed == "noninteractive solution job host default\n"


def test_a_variable_that_the_host_lacks_is_an_error(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    task = solved_by(tmp_path, "true", '[solution.env]\nA = "${NOWHERE_AT_ALL}"\n')
    with pytest.raises(ValueError, match="'NOWHERE_AT_ALL' not found in host environment"):
        run(oracle(place, task), place)


def test_of_a_fraction_of_a_second_the_command_gets_whole_seconds(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    with pytest.raises(RuntimeError, match=r"^Command timed out after 1 seconds$"):
        run(oracle(place, solved_by(tmp_path, "sleep 60"), timeout_sec=1.5), place)


def test_the_nth_run_is_the_nth_steps_and_a_step_without_solution_has_the_tasks(
    tmp_path: Path,
) -> None:
    root = make_steps(tmp_path / "task", "one", "two", "three")
    for name in ("one", "three"):
        write(root, {f"steps/{name}/solution/solve.sh": f"#!/bin/bash\necho {name} >> $ROOT/ran\n"})
    write(root, {"solution/solve.sh": "#!/bin/bash\necho task >> $ROOT/ran\n"})
    (root / "steps/two/solution/solve.sh").unlink()
    (root / "steps/two/solution").rmdir()
    place = make_place(tmp_path)
    agent = oracle(place, load_task(root))
    for _ in range(3):
        run(agent, place)
    assert (place.root / "ran").read_text() == "one\ntask\nthree\n"


def test_a_step_that_could_not_run_is_still_counted(tmp_path: Path) -> None:
    root = make_steps(tmp_path / "task", "one", "two")
    (root / "steps/one/solution/solve.sh").unlink()
    write(root, {"steps/two/solution/solve.sh": "#!/bin/bash\necho two > $ROOT/ran\n"})
    place = make_place(tmp_path)
    agent = oracle(place, load_task(root))
    with pytest.raises(FileNotFoundError, match="No OS-compatible solution script found for step"):
        run(agent, place)
    run(agent, place)
    assert (place.root / "ran").read_text() == "two\n"


def test_kwargs_are_taken_and_said_to_have_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = make_place(tmp_path)
    with caplog.at_level(logging.WARNING):
        OracleAgent(order_for(place, AgentConfig(name="oracle", kwargs={"x": 1})))
    assert "agent oracle takes no kwargs; ignored: x" in caplog.text
