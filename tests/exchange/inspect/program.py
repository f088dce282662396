"""Runs where inspect_ai is installed: makes logs, and says what Inspect itself reads in them.

program.py make DIRECTORY      one log of each kind, as .eval and as .json
program.py read FILE…          what is in logs, as JSON
program.py list DIRECTORY      what Inspect's own list and viewer need of a directory of logs
"""

import json
import math
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.log import (
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    write_eval_log,
)
from inspect_ai.model import (
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import Score, mean, metric, scorer, value_to_float
from inspect_ai.solver import generate, solver, system_message, use_tools
from inspect_ai.tool import ToolError, tool

VALUES: dict[str, Any] = {
    "correct": "C",
    "incorrect": "I",
    "partial": "P",
    "none": "N",
    "quarter": 0.25,
    "true": True,
    "yes": "Yes",
    "text": "2.5",
    "rubbish": "excellent",
    "nan": math.nan,
    "one-part": {"only": 1},
    "rewarded": {"reward": 0.5, "style": 0},
    "two-parts": {"x": 1, "y": 0},
    "list": [1, 0],
}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
LONG = "a long answer " * 20


@metric
def counted() -> Any:
    return lambda scores: len(scores)


@scorer(metrics=[counted()])
def first() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value=VALUES.get(str(state.sample_id), 1.0), answer="a", explanation=LONG)

    return score


@scorer(metrics=[mean()])
def second() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value=float(state.epoch))

    return score


@tool
def add() -> Any:
    async def execute(x: int, y: int) -> str:
        """Add two numbers.

        Args:
            x: One.
            y: Other.
        """
        if x < 0:
            raise ToolError("too small a number")
        return f"{x + y} {LONG}"

    return execute


@solver
def failing() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        if state.sample_id == "bad":
            raise ValueError("no such thing\nas this")
        return await generate(state)

    return solve


def answer(messages: Any, *_: Any) -> ModelOutput:
    """Call a tool, call it wrongly, then answer."""
    turn = sum(message.role == "assistant" for message in messages)
    if turn < 2:
        arguments = {"x": 1 - 2 * turn, "y": 2}
        output = ModelOutput.for_tool_call("mockllm/model", "add", arguments, content=LONG)
    else:
        output = ModelOutput.from_content("mockllm/model", "<think>I wonder</think>\n\nthree")
    return counted_tokens(output)


def forever(messages: Any, *_: Any) -> ModelOutput:
    arguments = {"x": len(messages), "y": 1}
    return counted_tokens(ModelOutput.for_tool_call("mockllm/model", "add", arguments))


def brief(*_: Any) -> ModelOutput:
    return counted_tokens(ModelOutput.from_content("mockllm/model", "done"))


def counted_tokens(output: ModelOutput) -> ModelOutput:
    """With tokens that are made up: Inspect would fetch a tokenizer to count them."""
    output.usage = ModelUsage(
        input_tokens=10,
        output_tokens=5,
        total_tokens=19,
        input_tokens_cache_read=3,
        input_tokens_cache_write=1,
    )
    return output


@task
def grades() -> Task:
    samples = [Sample(id=name, input=f"What is {name}?", target="x") for name in VALUES]
    return Task(dataset=samples, scorer=[first(), second()], version=3)


@task
def tools() -> Task:
    shown = [ContentText(text="Look:"), ContentImage(image=PIXEL), ContentText(text="and add.")]
    samples = [
        Sample(id=1, input="Add 1 and 2.", target="3"),
        Sample(id=2, input=[ChatMessageUser(content=shown)], target="3"),
    ]
    steps = [system_message("Be brief."), use_tools(add()), generate()]
    return Task(dataset=samples, solver=steps, scorer=second())


@task
def errors() -> Task:
    samples = [Sample(id=name, input=f"Do {name}.") for name in ("good", "bad", "dir/odd näme")]
    return Task(dataset=samples, solver=failing(), scorer=second())


@task
def limits() -> Task:
    samples = [Sample(id="endless", input="Go on.")]
    return Task(
        dataset=samples, solver=[use_tools(add()), generate()], scorer=second(), message_limit=7
    )


def make(place: Path) -> None:
    """Run every task, each in both forms."""
    runs: list[tuple[Any, Callable[..., Any], dict[str, Any]]] = [
        (grades, brief, {"epochs": 2}),
        (tools, answer, {}),
        (errors, brief, {"fail_on_error": False}),
        (limits, forever, {}),
    ]
    for form in ("eval", "json"):
        for made, script, options in runs:
            folder = str(place / form / made.__name__)
            model = get_model("mockllm/model", custom_outputs=script)
            eval(made(), model=model, log_dir=folder, log_format=form, display="none", **options)
    model = get_model("mockllm/model", custom_outputs=brief)
    eval(errors(), model=model, log_dir=str(place / "failed"), display="none")
    (whole,) = (place / "eval" / "limits").glob("*.eval")
    log = read_eval_log(str(whole))
    log.status, log.samples, log.results = "cancelled", None, None
    write_eval_log(log, str(place / "cancelled.eval"))
    (whole,) = (place / "eval" / "tools").glob("*.eval")
    with zipfile.ZipFile(whole) as ended, zipfile.ZipFile(place / "begun.eval", "w") as begun:
        for name in ended.namelist():
            if name.startswith(("samples/", "_journal/")):
                begun.writestr(name, ended.read(name))


def plain(value: Any) -> Any:
    """A value without NaN, which is not JSON."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def describe_sample(sample: Any) -> dict[str, Any]:
    scores = {name: plain(score.value) for name, score in (sample.scores or {}).items()}
    return {
        "id": sample.id,
        "epoch": sample.epoch,
        "scores": scores,
        "numbers": {
            name: plain(value_to_float()(score.value))
            for name, score in (sample.scores or {}).items()
            if not isinstance(score.value, list | dict)
        },
        "error": sample.error.message if sample.error else None,
        "limit": sample.limit.type if sample.limit else None,
        "input": sample.input if isinstance(sample.input, str) else None,
        "answer": sample.output.completion,
        "messages": [describe_message(message) for message in sample.messages],
        "usage": {name: usage.total_tokens for name, usage in sample.model_usage.items()},
        "total_time": sample.total_time,
        "completed_at": str(sample.completed_at) if sample.completed_at else None,
    }


def describe_message(message: Any) -> dict[str, Any]:
    calls = getattr(message, "tool_calls", None) or []
    error = getattr(message, "error", None)
    return {
        "role": message.role,
        "text": message.text,
        "calls": [[call.id, call.function, call.arguments] for call in calls],
        "answers": getattr(message, "tool_call_id", None),
        "error": error.message if error else None,
    }


def describe(path: str) -> dict[str, Any]:
    log = read_eval_log(path, resolve_attachments=True)
    return {
        "status": log.status,
        "eval_id": log.eval.eval_id,
        "task": log.eval.task,
        "model": log.eval.model,
        "scores": {
            score.name: {name: plain(metric.value) for name, metric in score.metrics.items()}
            for score in (log.results.scores if log.results else [])
        },
        "samples": [describe_sample(sample) for sample in log.samples or []],
    }


def list_logs(place: str) -> list[dict[str, Any]]:
    found = []
    for info in list_eval_logs(place):
        header = read_eval_log(info, header_only=True)
        summaries = read_eval_log_sample_summaries(info)
        read = [read_eval_log_sample(info, each.id, each.epoch) for each in summaries]
        found.append(
            {
                "task": header.eval.task,
                "status": header.status,
                "ids": [[each.id, each.epoch] for each in summaries],
                "messages": [len(each.messages) for each in read],
                "counted": [each.message_count for each in summaries],
            }
        )
    return found


def main() -> None:
    command, *paths = sys.argv[1:]
    if command == "make":
        make(Path(paths[0]))
        return
    found: Any = list_logs(paths[0]) if command == "list" else [describe(each) for each in paths]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
