"""harbor 0.25 on the golden vectors of harbor 0.13.1: where the two differ, as vectors again.

    python -m tests.conformance.later DIRECTORY

DIRECTORY holds the wheel alone: `uv pip install --no-deps --target DIRECTORY harbor==0.25.0`. It is
run in a process of its own, on the libraries that are installed here. What comes out is written to
vectors/later_reward_parse.jsonl; for metrics, pass@k and steps nothing does.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conformance import theirs
from tests.conformance.facts import comparable
from tests.conformance.vectors import VECTORS, Line, load_lines

SUBJECTS = {
    "reward_parse": theirs.parse_rewards,
    "metrics": theirs.run_metric,
    "pass_at_k": theirs.run_pass_at_k,
    "multi_step": theirs.run_steps,
}


def find_differences() -> dict[str, list[Line]]:
    """The vectors that the harbor of this process answers otherwise than 0.13.1, by subject."""
    return {
        name: [
            {"id": line["id"], "input": line["input"], "expect": fact}
            for line in load_lines(name)
            if comparable(fact := run(line["input"])) != comparable(line["expect"])
        ]
        for name, run in SUBJECTS.items()
    }


def run_later(directory: Path) -> dict[str, list[Line]]:
    """The differences of the harbor in a directory."""
    found: dict[str, list[Line]] = json.loads(run_with(directory, "-m", "tests.conformance.later"))
    return found


def run_with(directory: Path, *words: str) -> bytes:
    """What Python prints, with the harbor in a directory before the one that is installed."""
    path = os.pathsep.join([str(directory), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


def main() -> None:
    """Print the differences of this process's harbor, or write those of a directory's."""
    if len(sys.argv) == 1:
        json.dump(find_differences(), sys.stdout)
        return
    found = run_later(Path(sys.argv[1]))
    for name, lines in found.items():
        sys.stderr.write(f"{name}: {len(lines)} of {len(load_lines(name))} differ\n")
        if lines:
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            (VECTORS / f"later_{name}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
