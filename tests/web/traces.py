"""Traces to look at in a browser: a long one, a hostile one, two that part."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from proctor.traces.entry import OUTPUT_FILE, OUTPUT_FORMAT

LONG = 50_000
"""Steps of the long trace."""
EVERY = 97
"""Every so manyeth of them ends in an error."""

type Line = Mapping[str, object]


def write_trial(
    job: Path, trial: str, lines: Iterable[Line | str], name: str = "agent/trajectory.jsonl"
) -> Path:
    """A trial of a job that left this trace; a line that is text stands there as it is."""
    path = job / trial / name
    path.parent.mkdir(parents=True, exist_ok=True)
    told = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{line}\n" for line in told), encoding="utf-8")
    return path


def write_output(trial: Path, *texts: str, code: int | None = None) -> Path:
    """What the commands of an agent printed, as a run records it."""
    (trial / "agent").mkdir(parents=True, exist_ok=True)
    (trial / "config.json").touch()  # by which it is recognised as a trial
    rows: list[Line] = [{"version": 1, "format": OUTPUT_FORMAT}]
    rows += [{"role": "output", "step": 0, "stdout": text} for text in texts]
    rows += [] if code is None else [{"role": "output", "step": 0, "exit_code": code}]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (trial / "agent" / OUTPUT_FILE).write_text(lines)
    return trial


def write_long(path: Path, steps: int = LONG) -> None:
    """A trajectory of many steps, three entries each; quickly, because many tests need it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="ascii") as file:
        file.write('{"role":"system","step":0,"content":"You are an agent."}\n')
        for step in range(1, steps + 1):
            code = 0 if step % EVERY else 1
            tool = "bash" if step % 5 else "edit"
            print_lines = "\\n".join(f"line {n} of file {step}" for n in range(step % 9))
            file.write(
                f'{{"role":"assistant","step":{step},"content":"I look at file {step}."}}\n'
                f'{{"role":"tool_call","step":{step},"tool_name":"{tool}",'
                f'"command":"sed -n 1p src/file_{step}.py"}}\n'
                f'{{"role":"tool_result","step":{step},"tool_name":"{tool}",'
                f'"stdout":"{print_lines}","stderr":"","exit_code":{code},"duration_ms":7}}\n'
            )


def said(step: int, text: str, **more: object) -> Line:
    """What an agent said."""
    return {"role": "assistant", "step": step, "content": text, **more}


def ran(step: int, command: str, tool: str = "bash") -> Line:
    """What it ran."""
    return {"role": "tool_call", "step": step, "tool_name": tool, "command": command}


def gave(step: int, text: str, code: int | None = 0, **more: object) -> Line:
    """What came of it."""
    return {
        "role": "tool_result", "step": step, "tool_name": "bash", "stdout": text,
        "exit_code": code, **more,
    }  # fmt: skip


DATA = "data:text/html;base64," + "A" * 5000
HOSTILE: tuple[Line | str, ...] = (
    said(1, "<script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }} ]]>"),
    ran(2, "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \x9b31m", "<svg/onload=alert(3)>"),
    gave(2, "x" * 300_000, 1),
    gave(3, "left \u202egnp.exe\u202c \u2066inner\u2069 \u200bzero \ufeff", None),
    {"role": '"><script>alert(4)</script>', "step": 4, "content": "role with tags"},
    gave(5, "W" * 400 + "\n" + "é\u0301" * 2000 + "\u0315\u0316" * 500),
    gave(6, "", media=["../../etc/passwd", "javascript:alert(5)", "shot.png", DATA]),
    '{"role":"assistant","step":7,"content":"torn',
    said(8, "after the torn line", timestamp="</time><script>alert(6)</script>"),
    said(9_007_199_254_740_999, "a step beyond what a script can count"),
)  # fmt: skip
"""Everything that a page could take for more than text."""


def touch_later(path: Path) -> None:
    """Have a file look changed, whatever the clock of the file system can tell apart."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
