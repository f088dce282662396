"""The files of a new task: it passes with its own solution, and fails if nothing is done.

    render_task(name)    the files of a task of this name, by their paths

Writes nothing.
"""

import re
from collections.abc import Mapping

from proctor.errors import TaskError

_PART = r"[A-Za-z0-9](?!.*\.\.)[A-Za-z0-9._-]*"
_NAME = re.compile(rf"({_PART}/)?{_PART}")

_CONFIG = """\
# Every key is described in docs/tasks.md of proctor.
schema_version = "1.3"
{package}
[agent]
timeout_sec = 600.0            # seconds that the agent has

[verifier]
timeout_sec = 120.0            # seconds that tests/test.sh has

[environment]
network_mode = "no-network"    # "public" for an agent that calls a model from inside
# cpus = 1
# memory_mb = 2048
"""

_PACKAGE = """
[task]
name = "{name}"
description = "Add up the numbers in a file."
"""

_INSTRUCTION = """\
The file `/app/numbers.txt` has one whole number on each line.

Write the sum of these numbers to `/app/answer.txt`.
"""

# python, because agents that are written in Python should run in Docker too. In the sandbox, the
# host's own /usr stands in for this image unless --base names another.
_DOCKERFILE = """\
FROM python:3.12-slim
WORKDIR /app
COPY numbers.txt /app/
"""

_NUMBERS = "17\n4\n21\n"

_SOLUTION = """\
#!/bin/bash
# The reference solution, which only the oracle agent runs: it shows that the task can be solved.
set -e
awk '{ sum += $1 } END { print sum }' /app/numbers.txt > /app/answer.txt
"""

_TEST = """\
#!/bin/bash
# Runs after the agent, in /app, and writes the reward, from 0 to 1. Whatever happens, a reward must
# be written: without one, the trial is errored. What is printed here is kept with the trial.
expected=42
found=$(cat /app/answer.txt 2>&1)
if [ "$found" = "$expected" ]; then
    echo "PASSED: /app/answer.txt is $expected"
    echo 1 > /logs/verifier/reward.txt
else
    echo "FAILED: /app/answer.txt: expected $expected, found: $found"
    echo 0 > /logs/verifier/reward.txt
fi
"""


def render_task(name: str) -> Mapping[str, str]:
    """Return the files of a new task by their paths; scripts start with `#!`.

    Args:
        name: `name`, or `organisation/name` to publish it under.

    Raises:
        TaskError: it is neither.
    """
    if not _NAME.fullmatch(name):
        raise TaskError(
            f"task name {name!r}: expected NAME or ORGANISATION/NAME of letters, digits, '.', '_' "
            "and '-', each beginning with a letter or digit"
        )
    package = _PACKAGE.format(name=name) if "/" in name else ""
    return {
        "task.toml": _CONFIG.format(package=package),
        "instruction.md": _INSTRUCTION,
        "environment/Dockerfile": _DOCKERFILE,
        "environment/numbers.txt": _NUMBERS,
        "solution/solve.sh": _SOLUTION,
        "tests/test.sh": _TEST,
    }
