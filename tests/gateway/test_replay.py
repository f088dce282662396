"""Conversations are reproduced from their recordings, and what differs is named."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from proctor.errors import ModelReplayError, TraceError
from proctor.gateway.account import Account
from proctor.gateway.gateway import open_gateway
from proctor.gateway.options import GatewayOptions, OnDifference
from proctor.gateway.recording import read_calls
from proctor.harbor.configs import AgentConfig
from proctor.trial.model_use import models_open
from proctor.trial.models import ModelUse
from tests.gateway.conftest import PATHS
from tests.gateway.conversations import (
    CHAT,
    Conversation,
    Run,
    all_conversations,
    changed_conversations,
    converse,
)
from tests.gateway.providers import KEY, Provider, Reply, running

TRIAL = AgentConfig(name="command", model_name="gpt-4o")
BASE = Conversation(CHAT, is_stream=False)

type Answers = list[tuple[int, bytes]]


def find_file(directory: Path) -> str:
    return str(directory / "agent" / "model-calls.jsonl")


@asynccontextmanager
async def opened(
    options: GatewayOptions, directory: Path, replay: tuple[str, ...] = ()
) -> AsyncIterator[Account]:
    """An open account of a gateway, as a trial has it; it may raise how the trial ends."""
    (directory / "agent").mkdir(parents=True, exist_ok=True)
    async with open_gateway(options) as gateway:
        account = gateway.open_agent("trial", str(directory / "agent"), TRIAL, {}, replay)
        assert isinstance(account, Account)
        async with models_open(account):
            yield account


def record(
    conversation: Conversation, directory: Path, script: list[Reply] | None = None
) -> Answers:
    """Hold a conversation with a running provider."""

    async def run(provider: Provider) -> Answers:
        endpoints = {name: f"{provider.origin}{path}" for name, path in PATHS.items()}
        host = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "GEMINI_API_KEY": KEY}
        async with opened(GatewayOptions(host, endpoints), directory) as account:
            return await converse(conversation, account.env, Run(1))

    with running(Provider(script=script or conversation.script)) as provider:
        return asyncio.run(run(provider))


def replay(
    conversation: Conversation,
    recorded: Path,
    directory: Path,
    on_difference: OnDifference = OnDifference.STOP,
    **more: Any,
) -> tuple[Answers, ModelUse, Exception | None]:
    """Hold a conversation with a recording, in a later run; nothing else can answer."""

    async def run() -> tuple[Answers, ModelUse, Exception | None]:
        options = GatewayOptions({}, on_difference=on_difference, **more)
        answers: Answers = []
        use, error = ModelUse(), None
        try:
            async with opened(options, directory, (find_file(recorded),)) as account:
                answers = await converse(conversation, account.env, Run(2))
                use = account.summarize()
        except ModelReplayError as raised:
            error = raised
        return answers, use, error

    return asyncio.run(run())


@pytest.mark.parametrize("conversation", all_conversations(), ids=lambda each: each.name)
def test_a_conversation_is_reproduced_with_the_provider_switched_off(
    conversation: Conversation, tmp_path: Path
) -> None:
    before = record(conversation, tmp_path / "then")
    answers, use, error = replay(conversation, tmp_path / "then", tmp_path / "now")
    assert error is None
    assert sorted(answers) == sorted(before)
    assert use.replay is not None
    assert (use.replay.n_asked, use.replay.n_replayed) == (len(before), len(before))
    assert (use.replay.difference, use.replay.unasked) == (None, None)
    assert use.basis is not None
    assert (use.basis.kind, use.basis.amount_usd) == ("replayed", 0.0)
    assert use.usage.input == 100 * len(before)
    assert all(each.call.is_replayed for each in read_calls(find_file(tmp_path / "now")))


def test_there_are_twenty_conversations() -> None:
    assert len({each.name for each in all_conversations()}) == 20


@pytest.mark.parametrize("what", sorted(changed_conversations(BASE)))
def test_a_changed_conversation_is_named_with_its_first_difference(
    what: str, tmp_path: Path
) -> None:
    record(BASE, tmp_path / "then")
    changed, pattern = changed_conversations(BASE)[what]
    _, use, error = replay(changed, tmp_path / "then", tmp_path / "now")
    assert use.replay is not None
    sentence = use.replay.difference or use.replay.unasked or ""
    assert re.search(pattern, sentence, re.DOTALL), sentence
    # Nothing is left to stop when requests are missing at the end.
    assert (error is None) == (what == "missing")
    if error is not None:
        assert str(error) == sentence


def test_the_agent_gets_an_error_in_its_protocol_and_nothing_more(tmp_path: Path) -> None:
    record(BASE, tmp_path / "then")
    changed = changed_conversations(BASE)["output"][0]
    answers, use, _ = replay(changed, tmp_path / "then", tmp_path / "now")
    assert [status for status, _ in answers] == [200, 403]
    error = json.loads(answers[-1][1])["error"]
    assert error["code"] == "replay_differs"
    assert use.replay is not None
    assert error["message"] == use.replay.difference
    last = list(read_calls(find_file(tmp_path / "now")))[-1].call
    assert (last.ended, last.is_replayed) == ("differs", False)


def test_by_position_the_next_recorded_answer_is_given(tmp_path: Path) -> None:
    before = record(BASE, tmp_path / "then")
    changed = changed_conversations(BASE)["instruction"][0]
    answers, use, error = replay(
        changed, tmp_path / "then", tmp_path / "now", OnDifference.POSITION
    )
    assert (answers, error) == (before, None)
    assert use.replay is not None
    assert use.replay.n_replayed == len(before)
    assert use.replay.difference is not None
    assert "request 1 differs" in use.replay.difference


def test_by_position_a_conversation_that_is_too_long_ends(tmp_path: Path) -> None:
    record(BASE, tmp_path / "then")
    changed = changed_conversations(BASE)["extra"][0]
    answers, _, error = replay(changed, tmp_path / "then", tmp_path / "now", OnDifference.POSITION)
    assert [status for status, _ in answers] == [200, 200, 200, 200, 403]
    assert "request 5 differs" in str(error)


def test_live_the_rest_is_asked_of_the_provider(tmp_path: Path) -> None:
    record(BASE, tmp_path / "then")
    changed = changed_conversations(BASE)["output"][0]
    with running(Provider(script=[Reply(text="new")])) as provider:
        endpoints = {"openai": f"{provider.origin}/v1"}
        answers, use, error = replay(
            changed, tmp_path / "then", tmp_path / "now", OnDifference.LIVE, endpoints=endpoints
        )
    assert error is None
    assert len(provider.asked) == 1
    assert b"new" in answers[-1][1]
    assert use.replay is not None
    assert (use.replay.n_asked, use.replay.n_replayed) == (2, 1)
    assert use.basis is not None
    assert use.basis.kind == "estimated"
    assert "1 of 2 answers came from a recording and cost nothing" in use.basis.notes


def test_an_error_of_the_provider_is_repeated_too(tmp_path: Path) -> None:
    script = [Reply(status=400, error="the context is too long")]
    before = record(BASE, tmp_path / "then", script)
    answers, use, error = replay(BASE, tmp_path / "then", tmp_path / "now")
    assert [status for status, _ in before] == [400]
    assert (answers, error) == (before, None)
    assert use.replay is not None
    assert use.replay.n_replayed == 1


def test_requests_that_are_not_to_models_are_repeated(tmp_path: Path) -> None:
    async def list_models(env: Any) -> tuple[int, bytes]:
        async with httpx.AsyncClient() as client:
            headers = {"authorization": f"Bearer {env['OPENAI_API_KEY']}"}
            answer = await client.get(f"{env['OPENAI_BASE_URL']}/models", headers=headers)
            return answer.status_code, answer.content

    async def run(options: GatewayOptions, directory: Path, *replay: str) -> tuple[int, bytes]:
        async with opened(options, directory, replay) as account:
            return await list_models(account.env)

    with running(Provider()) as provider:
        options = GatewayOptions({}, {"openai": f"{provider.origin}/v1"})
        before = asyncio.run(run(options, tmp_path / "then"))
    recorded = find_file(tmp_path / "then")
    assert asyncio.run(run(GatewayOptions({}), tmp_path / "now", recorded)) == before


def test_a_replayed_trial_can_be_replayed(tmp_path: Path) -> None:
    conversation = Conversation(CHAT, is_stream=True)
    before = record(conversation, tmp_path / "first")
    replay(conversation, tmp_path / "first", tmp_path / "second")
    answers, _, error = replay(conversation, tmp_path / "second", tmp_path / "third")
    assert (answers, error) == (before, None)


def _tear(text: bytes) -> bytes:
    return text[: text.rindex(b'"request"')]


def _edit(text: bytes) -> bytes:
    return text.replace(b"Fix the build.", b"Let it be.....")


def _double(text: bytes) -> bytes:
    """Lines that each repeat the one before twice."""
    header, first, *_ = text.splitlines(keepends=True)
    call = json.loads(first)
    like = {"text": "", "like": call["request_sha256"], "n_first": 10**9, "n_last": 10**9}
    return header + first + json.dumps({**call, "request": like}).encode() + b"\n"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_edit, "the request's digest differs"),
        (_double, "shares more bytes than there are"),
        (lambda text: b"", "is empty; expected proctor-model-calls"),
        (lambda text: b"{}\n" + text, "Expected `object`|digest|missing|expected"),
        (lambda text: text.replace(b'"version":1', b'"version":2', 1), "expected proctor-model"),
        (lambda text: text + b"[" * 100_000 + b"\n", "expected an exchange with a model"),
        (lambda text: text + b"\xff\xfe\n", "expected an exchange with a model"),
    ],
)
def test_a_spoiled_recording_is_named(
    spoil: Callable[[bytes], bytes], sentence: str, tmp_path: Path
) -> None:
    record(BASE, tmp_path / "then")
    file = Path(find_file(tmp_path / "then"))
    file.write_bytes(spoil(file.read_bytes()))
    error: Exception | None
    try:
        _, _, error = replay(BASE, tmp_path / "then", tmp_path / "now")
    except TraceError as raised:
        error = raised
    assert str(file) in str(error)
    assert re.search(sentence, str(error))


def test_of_a_torn_recording_the_whole_lines_are_used(tmp_path: Path) -> None:
    record(BASE, tmp_path / "then")
    file = Path(find_file(tmp_path / "then"))
    file.write_bytes(_tear(file.read_bytes()))
    answers, _, error = replay(BASE, tmp_path / "then", tmp_path / "now")
    assert [status for status, _ in answers] == [200, 200, 200, 403]
    assert "its last line is torn, because its run was killed" in str(error)


def test_a_recording_that_vanishes_ends_the_trial(tmp_path: Path) -> None:
    record(BASE, tmp_path / "then")

    async def run() -> None:
        file = find_file(tmp_path / "then")
        async with opened(GatewayOptions({}), tmp_path / "now", (file,)) as account:
            Path(file).unlink()
            await converse(BASE, account.env, Run(2))

    with pytest.raises(ModelReplayError, match="No such file"):
        asyncio.run(run())


def test_a_recorded_status_and_address_are_not_trusted(tmp_path: Path) -> None:
    record(BASE, tmp_path / "then")
    file = Path(find_file(tmp_path / "then"))
    header, *lines = file.read_bytes().splitlines(keepends=True)
    calls = [json.loads(line) for line in lines]
    calls[0]["status"] = 99999
    calls[1]["content_type"] = "text/plain\r\nset-cookie: a=b"
    file.write_bytes(header + b"".join(json.dumps(each).encode() + b"\n" for each in calls))
    answers, _, error = replay(BASE, tmp_path / "then", tmp_path / "now")
    assert [status for status, _ in answers] == [403]
    assert error is not None


def test_the_answers_are_those_that_the_model_gave(tmp_path: Path) -> None:
    conversation = Conversation(CHAT, is_stream=True)
    before = record(conversation, tmp_path / "then")
    answers, _, _ = replay(conversation, tmp_path / "then", tmp_path / "now")
    assert answers == before
