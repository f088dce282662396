"""The README's agent that asks a model, run as it is written against a scripted provider."""

import json
import subprocess
import sys
from pathlib import Path

from tests.gateway.providers import KEY, Provider, Reply, running
from tests.test_docs import ROOT

SOLUTION = "awk '{ sum += $1 } END { print sum }' numbers.txt > answer.txt"


def test_the_readmes_agent_is_traced_and_priced(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("```sh\nexport OPENAI_API_KEY=…")[2].partition("```")[0]
    # The rest of its first line is a comment about the key, which is set below.
    block = block.partition("\n")[2]
    with running(Provider(script=[Reply(text=SOLUTION, input_tokens=90, output_tokens=30)])) as at:
        bin_dir = Path(sys.executable).parent
        env = {
            "PATH": f"{bin_dir}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(tmp_path / "home"),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{at.origin}/v1",
            "NO_COLOR": "1",
            "PROCTOR_BASE": "host",
        }
        (tmp_path / "work").mkdir()
        done = subprocess.run(
            ["bash", "-ec", f"proctor init > /dev/null\n{block}"],
            cwd=tmp_path / "work",
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    assert "reward       1" in done.stdout
    assert "One shell command, nothing else" in done.stdout
    assert SOLUTION in done.stdout
    assert "90 tokens in" in done.stdout
    [trial] = (tmp_path / "work" / "jobs" / "asked").glob("sum-numbers__*")
    record = json.loads((trial / "record.json").read_text())
    assert record["cost"]["tokens_in"] == 90
    assert record["cost"]["estimated_cost_usd"] > 0
    assert record["outputs"]["trajectory_path"] == "agent/model-trace.jsonl"
    found = subprocess.run(["grep", "-rl", KEY, str(tmp_path)], capture_output=True, check=False)
    assert found.stdout == b""
