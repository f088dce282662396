"""An agent in one file, which asks its model through the variables of its environment."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway.providers import Asked, Provider, Reply
from tests.task.trees import make_task, write

AGENT = """
import json, os, subprocess, sys, time, urllib.request

def ask(messages):
    body = json.dumps({"model": os.environ["PROCTOR_MODEL"], "messages": messages}).encode()
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
               "content-type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    answer = urllib.request.urlopen(urllib.request.Request(url, body, headers))
    return json.load(answer)["choices"][0]["message"]

messages = [{"role": "system", "content": "It is " + time.strftime("%Y-%m-%d %H:%M:%S.") + EXTRA},
            {"role": "user", "content": sys.stdin.read()}]
while True:
    said = ask(messages)
    messages.append(said)
    if not said.get("tool_calls"):
        break
    call = said["tool_calls"][0]
    command = json.loads(call["function"]["arguments"])["command"]
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout})
"""
COMMAND = "python3 /installed-agent/agent.py"
SCRIPT = (
    Reply(text="Look first.", command="date; mktemp; ls -l /app; echo $RANDOM > /dev/null"),
    Reply(text="Write it.", command="echo 42 > /app/answer; cat /app/answer"),
    Reply(text="Done."),
)
TEST = """#!/bin/bash
[ "$(cat /app/answer)" = 42 ]
echo $((1 - $?)) > /logs/verifier/reward.txt
"""
CONFIG = '[environment]\nworkdir = "/app"\nnetwork_mode = "no-network"\n'


@dataclass
class ByLength(Provider):
    """Answers by how long a conversation is, so that several may take turns."""

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply:
        """Return the reply for the length of the conversation."""
        n_answers = sum(one["role"] == "assistant" for one in body["messages"])
        reply = SCRIPT[min(n_answers, len(SCRIPT) - 1)]
        self.asked.append(Asked(path, headers, body, reply))
        return reply


def make_agent(root: Path, extra: str = "") -> Path:
    """The agent's directory; `extra` is added to what it tells its model."""
    if root.exists():
        shutil.rmtree(root)
    return write(root, {"agent.py": f"EXTRA = {extra!r}\n{AGENT}"})


def make_answer_task(root: Path, number: str = "42") -> Path:
    """A task that wants an answer in /app/answer."""
    write(make_task(root, CONFIG), {"tests/test.sh": TEST.replace("42", number)})
    return root
