"""While an agent's changes are recorded and its files are kept, its processes stand still."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.programs import run_child
from tests.cli.test_clean_room import TESTS, codes_of, load, trial

WRITE = """import itertools, os
for number in itertools.count():
    file = os.open("/app/count", os.O_WRONLY | os.O_CREAT)
    os.write(file, f"{number}\\n".encode() * 100_000)
    os.close(file)
"""
# Only the trial has the process: the clean room gives less, and its files are kept.
CHECK = """cp /app/count /logs/verifier/before; sleep 0.5; cp /app/count /logs/verifier/after
if ! cmp -s /logs/verifier/before /logs/verifier/after"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("paused")
    start = "setsid python3 /app/write.py >/dev/null 2>&1 </dev/null &\nsleep 1"
    files = {
        "task.toml": 'version = "1.0"\n[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n",
        "solution/solve.sh": f"cat > /app/write.py <<'END'\n{WRITE}END\n{start}\n",
        "tests/test.sh": TESTS.replace("if {check}", CHECK),
    }
    for path, text in files.items():
        target = place / "writer" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    words = ("-a", "oracle", "-o", place / "jobs", "--job-name", "job", "--no-ledger", "-q")
    ran = run_child("run", "-p", place / "writer", *words)
    assert ran.code == 0, ran.err
    return trial(place / "jobs" / "job", "writer")


def test_the_recorded_digest_is_that_of_the_kept_file(finished: Path) -> None:
    lines = (finished / "changes.jsonl").read_text().splitlines()[1:]
    # Those of the verification come after the agent's.
    recorded = next(each for each in map(json.loads, lines) if each["path"] == "/app/count")
    kept = (finished / "clean-room" / "clean" / "before").read_bytes()
    assert hashlib.sha256(kept).hexdigest() == recorded["sha256"]
    assert kept == (finished / "clean-room" / "control" / "before").read_bytes()


def test_the_process_goes_on_when_the_tests_run(finished: Path) -> None:
    assert load(finished / "result.json")["verifier_result"]["rewards"] == {"reward": 1.0}
    assert "agent-not-paused" not in codes_of(finished)
