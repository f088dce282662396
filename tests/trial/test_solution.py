"""Commands that are the task's own solution are a finding; the score stands."""

import json
from pathlib import Path

import pytest

from proctor.harbor.configs import AgentConfig
from tests.rerun.jobs import only_trial, run_trial, scripted, write_task

SOLUTION = """#!/bin/bash
set -e
# Make the place, then the answer.
mkdir -p /app
printf '%s\\n' 40 2 | paste -sd+ > /app/sum
bash -c 'echo $(( $(cat /app/sum) ))' > /app/answer
chmod 0644 /app/answer /app/sum
"""
SHIPPED = """ls /
mkdir  -p  "/app"
printf "%s\\n" 40 2 | paste -sd+ > /app/sum   # add
bash -c 'echo $(( $(cat /app/sum) ))' > /app/answer
chmod 0644 /app/answer /app/sum
"""
HONEST = "mkdir -p /app\nls -la /app\necho $((40 + 2)) > /app/answer\ncat /app/answer\n"


def codes_of(place: Path, agent: AgentConfig) -> list[str]:
    task = write_task(place / "task")
    (task / "solution" / "solve.sh").write_text(SOLUTION)
    trial = only_trial(run_trial(place, agent))
    result = json.loads((trial / "result.json").read_text())
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    path = trial / "findings.json"
    found = json.loads(path.read_text()) if path.exists() else []
    return [each["code"] for each in found if each["code"] == "commands-like-solution"]


@pytest.mark.sandbox
@pytest.mark.parametrize(("script", "codes"), [(SHIPPED, ["commands-like-solution"]), (HONEST, [])])
def test_shipping_the_solution_is_told_and_an_honest_way_is_not(
    tmp_path: Path, script: str, codes: list[str]
) -> None:
    assert codes_of(tmp_path, scripted(tmp_path, script)) == codes


@pytest.mark.sandbox
def test_the_oracle_is_not_told_of(tmp_path: Path) -> None:
    assert codes_of(tmp_path, AgentConfig(name="oracle")) == []
