"""`proctor run --allow-host-port`: the agent reaches the port, the tests do not, and it is said."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.environments.test_host_ports import ANSWER, serving
from tests.environments.test_network import with_slirp
from tests.task.trees import make_steps, make_task, write

FETCH = "curl -s -m 5 http://$ADDRESS/"
TEST = f"""#!/bin/bash
ADDRESS=$(cat /app/address)
({FETCH} || echo refused) > /logs/verifier/tests-heard
[ "$(cat /app/heard)" = '{ANSWER}' ] && [ "$(cat /logs/verifier/tests-heard)" = refused ]
echo $((1 - $?)) > /logs/verifier/reward.txt
"""


@with_slirp
@pytest.mark.usefixtures("cache")
def test_the_agent_reaches_it_the_tests_do_not_and_the_record_says_so(
    proctor: Proctor, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "tasks" / "ask", '[environment]\nworkdir = "/app"\n')
    write(task, {"tests/test.sh": TEST})
    jobs = tmp_path / "jobs"
    ask = f"echo $ADDRESS > /app/address; {FETCH} > /app/heard"
    with serving() as port:
        words = ["-p", task, "--command", ask, "--ae", f"ADDRESS={port}", "-o", jobs]
        ran = proctor("run", *words, "--allow-host-port", port, "--job-name", "job")
    assert ran.code == 0, ran.out + ran.err
    assert re.search(r"for information, .*\bhost-ports-open 1\b", ran.out)
    (trial,) = (path.parent for path in jobs.glob("job/*/findings.json"))
    assert (trial / "verifier/reward.txt").read_text() == "1\n"
    findings = json.loads((trial / "findings.json").read_text())
    (found,) = (one for one in findings if one["code"] == "host-ports-open")
    assert found["detail"] == {"ports": [str(port)]}
    assert not any("clean-room" in one["code"] for one in findings)
    config = json.loads((trial / "config.json").read_text())
    assert config["environment"]["kwargs"] == {"host_ports": [str(port)]}


@with_slirp
@pytest.mark.usefixtures("cache")
def test_every_step_of_the_agent_reaches_it_and_the_tests_of_none_do(
    proctor: Proctor, tmp_path: Path
) -> None:
    task = make_steps(tmp_path / "task", "one", "two", config='environment = {workdir = "/app"}\n')
    tests = {f"steps/{step}/tests/test.sh": f"{TEST}rm /app/heard\n" for step in ("one", "two")}
    write(task, tests)
    ask = f"echo $ADDRESS > /app/address; {FETCH} > /app/heard"
    with serving() as port:
        words = ["-p", task, "--command", ask, "--ae", f"ADDRESS={port}", "-o", tmp_path / "jobs"]
        ran = proctor("run", *words, "--allow-host-port", port, "--job-name", "job")
    assert ran.code == 0, ran.out + ran.err
    rewards = sorted((tmp_path / "jobs").glob("job/*/steps/*/verifier/reward.txt"))
    assert [reward.read_text() for reward in rewards] == ["1\n", "1\n"]


@with_slirp
@pytest.mark.usefixtures("cache")
def test_a_task_without_a_network_is_an_error_that_names_the_option(
    proctor: Proctor, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "task", '[environment]\nnetwork_mode = "no-network"\n')
    words = ["-p", task, "--command", "true", "-o", tmp_path / "jobs", "--job-name", "job"]
    proctor("run", *words, "--allow-host-port", "127.0.0.1:8000")
    (result,) = (tmp_path / "jobs").glob("job/*/result.json")
    exception = json.loads(result.read_text())["exception_info"]
    assert exception["exception_type"] == "UnsupportedError"
    assert exception["exception_message"].startswith("--allow-host-port 127.0.0.1:8000: network_mo")


@with_slirp
def test_an_address_of_another_machine_is_refused_before_anything_is_created(
    proctor: Proctor, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "task")
    words = ["-p", task, "-a", "nop", "-o", tmp_path / "jobs"]
    ran = proctor("run", *words, "--allow-host-port", "198.51.100.7:80")
    assert (ran.code, ran.out) == (2, "")
    assert "198.51.100.7 is not an address of this machine" in ran.err
    assert not (tmp_path / "jobs").exists()
