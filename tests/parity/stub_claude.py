"""A task in which harbor's claude-code can be installed and run without the network.

Its image has an `apt-get` that does nothing and a `curl` that prints an installer, both ahead of
the real ones on PATH. The installer puts a stub to ~/.local/bin/claude that speaks as the real one:
a session log below $CLAUDE_CONFIG_DIR, stream-json on stdout. Of harbor nothing is changed.
"""

import base64
import json
from pathlib import Path
from typing import Any

from tests.parity.small_tasks import score, write_task

KEY = "sk-ant-0123456789"
VERSION = "1.0.18"
BROKEN = "claude-broken"
"""With this model it fails after its first turn."""
LEAKY = "claude-leaky"
"""With this model it shows its key."""
COST = 0.0123

_SESSION = "0b8c1c9e-4f5a-4d9c-9c58-1d2f5b1f0001"


def write_claude_task(directory: Path) -> Path:
    """The task: write 42 to answer.txt."""
    write_task(
        directory,
        solve="printf 42 > answer.txt",
        test=score("[ $(cat answer.txt) = 42 ]"),
        agent=90,
    )
    dockerfile = directory / "environment" / "Dockerfile"
    programs = {
        "apt-get": "#!/bin/bash\n",
        "curl": f"#!/bin/bash\ncat <<'END'\n{_installer()}\nEND\n",
    }
    lines = [_put(f"/usr/local/bin/{name}", text) for name, text in programs.items()]
    dockerfile.write_text(dockerfile.read_text() + "".join(f"RUN {line}\n" for line in lines))
    return directory


def _installer() -> str:
    return "mkdir -p ~/.local/bin && " + _put("~/.local/bin/claude", _stub())


def _put(path: str, text: str) -> str:
    packed = base64.b64encode(text.encode()).decode()
    return f"echo {packed} | base64 -d > {path} && chmod 755 {path}"


def _stub() -> str:
    session = f'"$CLAUDE_CONFIG_DIR/projects/-app/{_SESSION}.jsonl"'
    first, rest = _log()[:2], _log()[2:]
    return f"""#!/bin/bash
[ "$1" = --version ] && echo "{VERSION} (Claude Code)" && exit
said() {{ sed "s/MODEL/$ANTHROPIC_MODEL/"; }}
if [ "$ANTHROPIC_API_KEY" != {KEY} ]; then
  echo '{json.dumps({"type": "result", "is_error": True, "result": "Invalid API key"})}'
  exit 1
fi
said > {session} <<'END'
{_lines(first)}
END
said <<'END'
{_lines(_stream()[:2])}
END
[ "$ANTHROPIC_MODEL" = {BROKEN} ] && exit 1
[ "$ANTHROPIC_MODEL" = {LEAKY} ] && echo "$ANTHROPIC_API_KEY"
printf 42 > answer.txt
said >> {session} <<'END'
{_lines(rest)}
END
said <<'END'
{_lines(_stream()[2:])}
END
"""


def _lines(events: list[dict[str, Any]]) -> str:
    return "\n".join(map(json.dumps, events))


def _turn(number: int, content: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": 10 * number,
        "cache_read_input_tokens": 700 * (number - 1),
        "cache_creation_input_tokens": 300,
        "output_tokens": 20 + number,
    }
    return {
        "id": f"msg_{number}",
        "role": "assistant",
        "model": "MODEL",
        "content": content,
        "usage": usage,
    }


_CALL = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "Bash",
    "input": {"command": "printf 42 > answer.txt"},
}
_TURNS = [
    _turn(1, [{"type": "text", "text": "I write it down."}, _CALL]),
    _turn(2, [{"type": "text", "text": "Done."}]),
]
_RESULT = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": ""}]


def _log() -> list[dict[str, Any]]:
    """The session log: the instruction, two turns, and what the tool said between them."""
    spoken: list[tuple[str, dict[str, Any]]] = [
        ("user", {"role": "user", "content": "Do it."}),
        ("assistant", _TURNS[0]),
        ("user", {"role": "user", "content": _RESULT}),
        ("assistant", _TURNS[1]),
    ]
    return [
        {
            "type": kind,
            "uuid": f"event-{second}",
            "sessionId": _SESSION,
            "timestamp": f"2026-01-01T00:00:0{second}.000Z",
            "version": VERSION,
            "cwd": "/app",
            "message": message,
        }
        for second, (kind, message) in enumerate(spoken)
    ]


def _stream() -> list[dict[str, Any]]:
    """What it prints."""
    return [
        {"type": "system", "subtype": "init", "session_id": _SESSION, "model": "MODEL"},
        {"type": "assistant", "session_id": _SESSION, "message": _TURNS[0]},
        {"type": "user", "session_id": _SESSION, "message": {"role": "user", "content": _RESULT}},
        {"type": "assistant", "session_id": _SESSION, "message": _TURNS[1]},
        {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2}
        | {"session_id": _SESSION, "total_cost_usd": COST, "result": "Done."},
    ]
