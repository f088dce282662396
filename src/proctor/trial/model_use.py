"""What a trial takes from its model gateway: tokens, cost, how it ended, and contradictions."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from proctor.errors import ModelLimitError, ModelReplayError, ModelServerError, TraceError
from proctor.harbor.trial_result import AgentContext
from proctor.record.cost import describe_basis
from proctor.sentence import count_of
from proctor.traces.entry import MODEL_TRACE, Entry, TraceKind
from proctor.traces.trace import Trace, load_trace_file
from proctor.trial.finding import ATTEMPT, FindingCode
from proctor.trial.models import REPLAY_KEY, ModelAccount, ModelUse, ReplayUse
from proctor.trial.trial_run import TrialRun

_ASSISTANT: Final = "assistant"
_WORD = re.compile(r"\w+")
_LEAST_TRIPLES: Final = 10
_MOST_STEPS: Final = 100
# Key of an agent's metadata with the address that it asked.
_ENDPOINT: Final = "endpoint"


@asynccontextmanager
async def models_open(account: ModelAccount | None) -> AsyncIterator[None]:
    """Let an agent reach models inside the context.

    Raises:
        ModelLimitError: a limit was reached, even if the agent took it for an answer.
        ModelReplayError: a request differs from the recording whose answers are used.
        ModelServerError: the agent failed, and so did its provider, last of all.
        Exception: raised by the agent.
    """
    if account is None:
        yield
        return
    try:
        async with account.opened():
            yield
    except Exception as error:  # an agent may raise anything; its provider may be why
        if ending := _find_ending(account.summarize(), has_failed=True):
            raise ending from error
        raise
    if ending := _find_ending(account.summarize(), has_failed=False):
        raise ending


def _find_ending(use: ModelUse, *, has_failed: bool) -> Exception | None:
    if use.limit is not None:
        return ModelLimitError(use.limit)
    if use.replay is not None and use.replay.is_stopped:
        return ModelReplayError(use.replay.difference or "a request differs from the recording")
    return ModelServerError(use.outage) if use.outage is not None and has_failed else None


def fill_context(run: TrialRun, context: AgentContext) -> None:
    """Replace the agent's own counts by the provider's; a contradiction becomes a finding."""
    account = run.models
    if account is None:
        return
    use = account.summarize()
    metadata = context.metadata
    if isinstance(metadata, dict) and isinstance(url := metadata.get(_ENDPOINT), str):
        context.metadata = {**metadata, _ENDPOINT: account.describe(url)}
    if use.replay is not None:
        # A difference that ended nothing becomes a finding.
        described = describe_replay(use.replay)
        context.metadata = {**(context.metadata or {}), REPLAY_KEY: described}
        if use.replay.difference is not None and not use.replay.is_stopped:
            _add_difference(run, use.replay.difference, described)
    if use.n_requests == 0:
        return
    pairs = {
        "input tokens": (context.n_input_tokens, use.usage.input),
        "output tokens": (context.n_output_tokens, use.usage.output),
    }
    differing = {
        name: {"agent": own, "provider": counted}
        for name, (own, counted) in pairs.items()
        if own is not None and counted is not None and own != counted
    }
    if differing:
        first = next(iter(differing))
        said = differing[first]
        run.add_finding(
            FindingCode.MODEL_USE_DIFFERS,
            f"the agent reports {said['agent']:,} {first}, its provider {said['provider']:,}; the "
            "provider's counts are used",
            **{name.replace(" ", "_"): value for name, value in differing.items()},
        )
    usage, basis = use.usage, use.basis
    if usage.input is not None or usage.output is not None:
        context.n_input_tokens, context.n_output_tokens = usage.input, usage.output
        context.n_cache_tokens = usage.cache_read
    if basis is not None and basis.amount_usd is not None:
        context.cost_usd = basis.amount_usd
    more: dict[str, object] = {"model_requests": use.n_requests, "models": list(use.models)}
    if usage.cache_write is not None:
        more["cache_write_tokens"] = usage.cache_write
    if basis is not None:
        more["cost_basis"] = describe_basis(basis)
    context.metadata = {**(context.metadata or {}), **more}


def note_unasked(run: TrialRun) -> None:
    """Add a finding if recorded requests were not repeated by the end of the trial."""
    use = run.models.summarize() if run.models is not None else None
    if use is not None and use.replay is not None and use.replay.unasked is not None:
        _add_difference(run, use.replay.unasked, describe_replay(use.replay))


def _add_difference(run: TrialRun, sentence: str, described: dict[str, object]) -> None:
    code = FindingCode.MODEL_REPLAY_DIFFERS
    # Once: each step of a task has its own account, and earlier attempts keep their findings.
    if not any(each.code is code and ATTEMPT not in each.detail for each in run.findings):
        run.add_finding(code, sentence, **described)


def describe_replay(replay: ReplayUse) -> dict[str, object]:
    """Return how requests were answered from a recording, as JSON for metadata."""
    fields: dict[str, object] = msgspec.to_builtins(replay)
    return {
        name: value for name, value in fields.items() if value is not None and value is not False
    }


async def compare_trace(run: TrialRun, trace: Trace) -> bool:
    """Add findings if the agent's own trace contradicts its model calls; return whether it does."""
    account = run.models
    if account is None or trace.path.endswith(MODEL_TRACE):
        return False
    use = account.summarize()
    named = [model for model in trace.models if use.models and not _is_named(model, use.models)]
    if named:
        run.add_finding(
            FindingCode.MODEL_USE_DIFFERS,
            f"the agent's trace names {', '.join(named[:3])}; what answered was "
            f"{', '.join(use.models[:3])}",
            trace=list(named),
            answered=list(use.models),
        )
    # In a thread: both traces may be long.
    path = f"{run.place}/agent/{MODEL_TRACE}"
    invented = await asyncio.to_thread(find_invented, trace, path) if use.n_requests else []
    if invented:
        run.add_finding(
            FindingCode.MODEL_USE_DIFFERS,
            f"{count_of(len(invented), 'answer')} in the agent's trace came from no model call of "
            f"the trial, the first at step {invented[0]}",
            steps=invented[:_MOST_STEPS],
        )
    return bool(named or invented)


def find_invented(trace: Trace, recorded: str) -> list[int]:
    """Return the steps of a trace with answers that are not among the recorded ones.

    Agents shorten and reformat what a model said, so an answer counts as the model's if half of
    its sequences of three words occur anywhere in the recorded answers. Short ones are passed over.
    """
    try:
        answers = load_trace_file(recorded, TraceKind.TRAJECTORY).entries
    except TraceError:
        return []
    known = {triple for entry in answers for triple in _find_triples(_spell(entry))}
    invented = []
    for entry in trace.all_entries:
        triples = _find_triples(entry.content or "") if entry.role == _ASSISTANT else []
        is_known = 2 * sum(triple in known for triple in triples) >= len(triples)
        if len(triples) >= _LEAST_TRIPLES and not is_known:
            invented.append(entry.step)
    return invented


def _spell(entry: Entry) -> str:
    """Everything that a model said in an entry."""
    if entry.role not in (_ASSISTANT, "tool_call"):
        return ""
    return f"{entry.content or ''} {entry.command or ''} {entry.arguments or ''} {entry.metadata}"


def _find_triples(text: str) -> list[tuple[str, ...]]:
    # Line ends of texts inside JSON are spelled out.
    words = _WORD.findall(text.replace("\\n", " ").lower())
    return list(zip(words, words[1:], words[2:], strict=False))


def _is_named(model: str, answered: Sequence[str]) -> bool:
    """Whether a model answered, under this name or with a date or provider added to it."""
    bare = model.rpartition("/")[2]
    return any(bare in name or name in model for name in answered)
