"""The loop of `chat`: what the model is told, what is run, and what ends it."""

import asyncio
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import AgentError
from proctor.task.environment import McpServer
from proctor.trial.clock import Clock
from tests.agents.chat.server import (
    USAGE,
    answers,
    calls,
    chunk,
    completion,
    runs,
    says,
    serving,
    streams,
    tool_call,
    waits,
)
from tests.agents.chat.talks import KEY, start, talk


def test_commands_are_run_until_the_model_answers(tmp_path: Path) -> None:
    with serving(runs("echo hello > f", text="I write."), runs("cat f; exit 3"), says("Ok")) as up:
        run = talk(tmp_path, up)
    assert (run.place.root / "work" / "f").read_text() == "hello\n"
    assert [message["role"] for message in up.asked[0].body["messages"]] == ["system", "user"]
    assert up.asked[2].last == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "[exit code: 3]\nhello\n",
    }
    assert run.told["ended"] == "answer"
    assert (run.told["turns"], run.told["commands"], run.told["retries"]) == (3, 2, 0)


def test_the_request_has_what_every_endpoint_knows_and_what_was_wished_for(tmp_path: Path) -> None:
    wishes: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 1,
        "seed": 7,
        "max_output_tokens": 99,
        "reasoning_effort": "low",
        "extra_body": {"provider": {"order": ["x"]}},
        "system_prompt": "Be brief.",
    }
    with serving(says("Done.")) as up:
        talk(tmp_path, up, **wishes)
    (asked,) = up.asked
    body = dict(asked.body)
    (tool,) = body.pop("tools")
    assert tool["function"]["name"] == "bash"
    assert body == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Do it."},
        ],
        "temperature": 0.5,
        "top_p": 1.0,
        "seed": 7,
        "max_tokens": 99,
        "reasoning_effort": "low",
        "provider": {"order": ["x"]},
    }
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"


def test_without_a_key_none_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(says("Done.")) as up:
        talk(tmp_path, up, env={})
    assert "authorization" not in up.asked[0].headers


def test_the_trajectory_holds_every_word_figure_and_time(tmp_path: Path) -> None:
    thought = completion({"content": "Hm.", "reasoning_content": "Let me see.", "tool_calls": None})
    thought["choices"][0]["message"]["tool_calls"] = [tool_call({"command": "true", "timeout": 9})]
    with serving(answers(thought), says("Done.")) as up:
        run = talk(tmp_path, up)
    roles = [(entry.step, entry.role) for entry in run.entries]
    assert roles == [
        (0, "system"),
        (0, "user"),
        (1, "assistant"),
        (1, "tool_call"),
        (1, "tool_result"),
        (2, "assistant"),
    ]
    said, call, result = run.entries[2:5]
    assert said.content == "Hm."
    assert said.metadata is not None
    carried = said.metadata["atif"]
    assert carried["reasoning_content"] == "Let me see."
    assert carried["model_name"] == "gpt-4o-2024-08-06"
    assert carried["metrics"]["prompt_tokens"] == 100
    assert carried["metrics"]["cached_tokens"] == 40
    assert carried["metrics"]["extra"] == {"reasoning_tokens": 3, "cost_basis": "estimated"}
    assert said.duration_ms is not None
    assert (call.command, call.arguments) == ("true", {"command": "true", "timeout": 9})
    assert (result.exit_code, result.stdout) == (0, "")
    assert set(run.told) >= {"model_seconds", "command_seconds"}


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("is_sent", [True, False])
def test_reasoning_goes_back_with_its_call_under_the_name_it_came_with(
    tmp_path: Path, key: str, stream: bool, is_sent: bool
) -> None:
    said = {key: "Hm.", "tool_calls": [{"index": 0, **tool_call({"command": "true"})}]}
    whole = streams(chunk(said, "tool_calls")) if stream else answers(completion(said))
    with serving(whole, says("Done.")) as up:
        run = talk(tmp_path, up, stream=stream, send_reasoning=is_sent)
    sent = up.asked[1].body["messages"][-2]
    assert {name: sent[name] for name in sent if "reason" in name} == (
        {key: "Hm."} if is_sent else {}
    )
    said_then = run.of("assistant")[0].metadata
    assert said_then is not None
    assert said_then["atif"]["reasoning_content"] == "Hm."


def test_a_word_in_place_of_a_key_is_no_secret(tmp_path: Path) -> None:
    with serving(says("The file is EMPTY.")) as up:
        run = talk(tmp_path, up, env={"OPENAI_API_KEY": "EMPTY"})
    assert run.of("assistant")[0].content == "The file is EMPTY."
    assert up.asked[0].headers["authorization"] == "Bearer EMPTY"


def test_several_calls_of_one_answer_are_run_in_order(tmp_path: Path) -> None:
    with serving(runs("echo a >> f", "echo b >> f", "cat f"), says("Done.")) as up:
        run = talk(tmp_path, up)
    told = up.asked[1].body["messages"][-3:]
    assert [message["tool_call_id"] for message in told] == ["c1", "c2", "c3"]
    assert told[2]["content"] == "[exit code: 0]\na\nb\n"
    assert [entry.stdout for entry in run.of("tool_result")] == ["", "", "a\nb\n"]


def test_a_streamed_answer_is_the_same_answer(tmp_path: Path) -> None:
    pieces = [
        ": a comment\n\n",
        chunk({"role": "assistant", "content": "I "}),
        chunk({"content": "löök.", "reasoning_content": "Hm"}),
        chunk({"tool_calls": [{"index": 0, **tool_call('{"comm')}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'and": "echo hi"}'}}]}),
        chunk({}, "tool_calls"),
        {"model": "gpt-4o-2024-08-06", "choices": [], "usage": USAGE},
        {"choices": []},
    ]
    with serving(streams(*pieces), streams(chunk({"content": "Done."}, "stop"))) as up:
        run = talk(tmp_path, up, stream=True)
    assert up.asked[0].body["stream_options"] == {"include_usage": True}
    assert run.commands == ["echo hi"]
    first, second = run.of("assistant")
    assert first.content == "I löök."
    assert first.metadata is not None
    assert first.metadata["atif"]["reasoning_content"] == "Hm"
    assert first.metadata["atif"]["metrics"]["prompt_tokens"] == 100
    assert second.content == "Done."
    # The second answer did not say what it took: unknown, and not 0.
    assert (run.context.n_input_tokens, run.context.cost_usd) == (None, None)
    assert run.told["cost_basis"] == {
        "kind": "unknown",
        "why_unknown": "the agent's input tokens are not known",
    }


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (calls('{"command": "ls'), "error: the 15 characters of arguments are no JSON object"),
        (calls([1]), "error: the 3 characters of arguments are no JSON object; expected"),
        (calls('{"command": "ls", "timeout": NaN}'), "error: the 33 characters of arguments are"),
        (calls({"command": "ls"}, "a.b"), "error: there is no tool 'a.b'; the only tool is bash"),
        (calls({"cmd": "ls"}), "error: bash takes command and timeout, not cmd"),
        (calls({"command": " "}), "error: command is missing or empty"),
        (calls({"command": "a\0b"}), "error: command holds a zero byte"),
        (calls({"command": "ls", "timeout": "soon"}), "error: timeout is soon; expected a number"),
        (calls({"command": "ls", "timeout": -1}), "error: timeout is -1; expected a number"),
        (calls({"command": "x" * 130_000}), "error: command has 130,000 bytes; at most 120,000"),
    ],
)
def test_a_call_that_cannot_be_run_is_answered_with_a_sentence(
    tmp_path: Path, reply: Any, sentence: str
) -> None:
    with serving(reply, says("Sorry.")) as up:
        run = talk(tmp_path, up)
    said, told = up.asked[1].body["messages"][-2:]
    assert told["content"].startswith(sentence)
    # What is sent back can be read by an endpoint that reads it.
    sent = said["tool_calls"][0]["function"]
    assert isinstance(msgspec.json.decode(sent["arguments"]), dict)
    assert sent["name"] in ("bash", "unknown")
    assert (run.commands, run.told["malformed"], run.told["ended"]) == ([], 1, "answer")
    (result,) = run.of("tool_result")
    assert (result.exit_code, (result.stdout or "")[:30]) == (None, sentence[:30])


def test_too_many_malformed_answers_in_a_row_end_the_run(tmp_path: Path) -> None:
    bad, empty = calls("{"), says("  ")
    with serving(bad, empty, runs("true"), bad, empty, bad, bad) as up:
        run = talk(tmp_path, up, max_malformed=3)
    assert len(up.asked) == 6
    assert run.told["limit"] == {"name": "max_malformed", "limit": 3, "reached": 3}
    assert run.told["malformed"] == 5


def test_an_answer_that_was_cut_off_is_not_taken_for_the_end(tmp_path: Path) -> None:
    cut = completion({"content": "First I will"})
    cut["choices"][0]["finish_reason"] = "length"
    with serving(answers(cut), says("Done.")) as up:
        run = talk(tmp_path, up)
    assert "cut off" in up.asked[1].last["content"]
    assert [entry.role for entry in run.entries][-2:] == ["user", "assistant"]


def test_a_command_that_never_returns_is_ended_and_the_model_told(tmp_path: Path) -> None:
    with serving(runs("sleep 600"), says("Done.")) as up:
        run = talk(tmp_path, up, command_timeout_sec=1)
    assert up.asked[1].last["content"].startswith("The command was ended after 1 seconds")
    assert run.of("tool_result")[0].exit_code == -1
    assert run.told["ended"] == "answer"


def test_the_model_may_ask_for_time_up_to_the_limit(tmp_path: Path) -> None:
    asked = [calls({"command": "true", "timeout": seconds}) for seconds in (2.5, 10**9)]
    with serving(*asked, says("Done.")) as up:
        run = talk(tmp_path, up, max_command_timeout_sec=300)
    assert [call[4] for call in run.place.calls] == [3, 300]


def test_of_a_long_output_the_middle_is_cut_and_that_is_said(tmp_path: Path) -> None:
    with serving(runs("printf 'a%.0s' {1..500}; printf 'z%.0s' {1..500}"), says("Done.")) as up:
        run = talk(tmp_path, up, output_limit=200)
    cut = "a" * 100 + "\n[… 800 characters cut here …]\n" + "z" * 100
    assert up.asked[1].last["content"] == f"[exit code: 0]\n{cut}"
    (result,) = run.of("tool_result")
    assert result.stdout == cut
    assert result.metadata == {"atif": {"extra": {"characters_cut": 800}}}


@pytest.mark.parametrize(
    ("limit", "value", "reached"),
    [
        ("max_turns", 2, 2),
        ("max_tokens", 220, 220),
        ("max_cost_usd", 0.0005, 0.0006),
    ],
)
def test_a_limit_ends_an_endless_run_without_an_error(
    tmp_path: Path, limit: str, value: float, reached: float
) -> None:
    with serving(runs("echo again >> f")) as up:
        run = talk(tmp_path, up, **{limit: value})
    assert len(up.asked) == 2
    # What the last answer called was still run.
    assert (run.place.root / "work" / "f").read_text() == "again\nagain\n"
    assert run.told["ended"] == "limit"
    assert run.told["limit"] == {"name": limit, "limit": value, "reached": reached}
    last = run.entries[-1]
    assert (last.role, last.content) == (
        "system",
        f"proctor ended the run: {limit} reached: {reached:g} of {value:g}",
    )


def test_calls_that_time_left_no_room_for_are_no_malformed_answer(tmp_path: Path) -> None:
    # Each look at the clock takes ten seconds: there is time for an answer, and for no call.
    clock = Clock(monotonic=partial(next, count(0, 10)))
    with serving(runs("true", "true")) as up:
        run = talk(tmp_path, up, max_seconds=45, max_malformed=1, clock=clock)
    assert (len(up.asked), run.commands) == (1, [])
    assert (run.told["limit"]["name"], run.told["malformed"]) == ("max_seconds", 0)


@pytest.mark.parametrize("script", [(waits(),), (runs("sleep 600", "sleep 600"),)])
def test_max_seconds_ends_a_wait_for_the_model_and_one_for_a_command(
    tmp_path: Path, script: Any
) -> None:
    with serving(*script) as up:
        run = talk(tmp_path, up, max_seconds=0.4)
    assert run.told["limit"]["name"] == "max_seconds"
    # On a busy machine the time may be over before anything has begun.
    assert len(up.asked) <= 1
    assert [call[4] for call in run.place.calls] in ([], [1])


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max_tokens": 9}, "max_tokens is 9 but cannot be checked: the endpoint does not report"),
        ({"max_cost_usd": 1}, "max_cost_usd is 1 but cannot be checked: the model's cost is"),
    ],
)
def test_a_limit_that_cannot_be_watched_is_an_error_and_not_ignored(
    tmp_path: Path, limits: dict[str, Any], why: str
) -> None:
    with serving(runs("true", usage=None)) as up:
        agent, run = start(tmp_path, up, **limits)
        with pytest.raises(AgentError, match=why):
            asyncio.run(agent.run("Do it.", run.place, run.context))
    assert run.told["ended"] == "error"


def test_the_key_stays_on_the_host_and_out_of_the_trace(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://nowhere", "WORD": "plain"}
    echo = f"I know {KEY}"
    with serving(runs("echo $WORD; env", text=echo), says(echo, model=KEY)) as up:
        run = talk(tmp_path, up, env=env)
    (call,) = run.place.calls
    assert call[3] == {"WORD": "plain"}
    trace = (run.place.trial_paths.agent_dir / "trajectory.jsonl").read_text()
    assert KEY not in trace + str(run.context)
    assert "I know [redacted:OPENAI_API_KEY]" in trace


@pytest.mark.parametrize("n_before", [1, 90, 95])
def test_a_secret_is_not_cut_in_two_and_kept_in_halves(tmp_path: Path, n_before: int) -> None:
    secret = f"tok-{'0123456789'}abcdef"
    env = {"OPENAI_API_KEY": KEY, "MY_TOKEN": secret}
    printed = f"printf 'a%.0s' {{1..{n_before}}}; printf %s $MY_TOKEN; printf 'z%.0s' {{1..500}}"
    malformed = calls("x" * (1900 + n_before) + secret)
    with serving(runs(printed), malformed, says("Done.")) as up:
        run = talk(tmp_path, up, env=env, output_limit=200)
    # The model is shown what there is; nothing of it is kept.
    assert "tok-" in up.asked[1].last["content"]
    trace = (run.place.trial_paths.agent_dir / "trajectory.jsonl").read_text()
    assert "tok-" not in trace
    assert "cdef" not in trace


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_call_was_signed_with_goes_back_with_it(tmp_path: Path, stream: bool) -> None:
    signed = {"extra_content": {"google": {"thought_signature": "abc"}}}
    said = {"tool_calls": [{"index": 0, **tool_call({"command": "true"}), **signed}]}
    whole = streams(chunk(said, "tool_calls")) if stream else answers(completion(said))
    with serving(whole, runs("true"), says("Done.")) as up:
        talk(tmp_path, up, stream=stream)
    messages = up.asked[2].body["messages"]
    first, second = (one["tool_calls"][0] for one in messages if "tool_calls" in one)
    assert first["extra_content"] == signed["extra_content"]
    assert "extra_content" not in second


def test_a_run_that_is_stopped_leaves_its_steps_and_its_figures(tmp_path: Path) -> None:
    with serving(runs("touch began; sleep 600")) as up:
        agent, run = start(tmp_path, up)

        async def stop() -> None:
            running = asyncio.create_task(agent.run("Do it.", run.place, run.context))
            while not (run.place.root / "work" / "began").exists():
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

        asyncio.run(stop())
    assert [entry.role for entry in run.entries][-1] == "tool_call"
    assert (run.context.n_input_tokens, run.told["ended"]) == (100, "stopped")


def test_skills_are_mentioned_and_servers_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = McpServer(name="tools", transport="stdio", command="x")
    with serving(says("Done.")) as up:
        talk(tmp_path, up, wishes={"skills_dir": "/skills", "mcp_servers": (server,)})
    assert up.asked[0].body["messages"][0]["content"].endswith("in /skills.")
    assert "MCP servers are not used: tools" in caplog.text
