"""Asks a model to label the turns of traces, in concurrent batches.

1. Labels cached by earlier runs are reused.
2. The other turns are sent in batches of consecutive turns, with the turns before as context.
3. A turn without a label in the answer is sent once more, alone.
4. A turn that still has no label stays unlabelled, with the reason.

If the endpoint rejects the key, does not know the model, or fails several times in a row, no more
requests are sent; the labels so far are cached. Imported on use, because httpx is slow to import.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from proctor.agents.chat.accounting import Account
from proctor.agents.chat.answers import Answer
from proctor.agents.chat.endpoint import Endpoint, Pace
from proctor.agents.chat.settings import Address
from proctor.errors import (
    InputError,
    ModelAuthError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
)
from proctor.harbor.agents import SHORTEST_CHAT_KEY
from proctor.traces.judge import (
    PROMPT_VERSION,
    Asked,
    CachedLabel,
    Judged,
    LabelCache,
    ShownTurn,
    label_of,
    make_request,
    name_question,
    read_answer,
    render_question,
)
from proctor.traces.labels import Label
from proctor.traces.writer import Redactor

BATCH_SIZE: Final = 5
CONTEXT_SIZE: Final = 3
# Failed requests in a row, each after its retries, before the judge gives up.
_MOST_FAILURES: Final = 3
# Errors that every further request would meet as well.
_FOR_ALL: Final = (ModelAuthError, ModelNotFoundError)
# Characters kept of a model's name, which comes from the endpoint and can be any length.
_MOST_NAME: Final = 200
_LOGGER = logging.getLogger("proctor.judge")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """Model, endpoint and limits of a judge."""

    model: str
    address: Address
    parallel: int = 4
    """Number of concurrent requests."""
    retries: int = 4
    """Number of retries per request."""
    timeout_sec: float = 180.0
    """Timeout of one try, in seconds."""


class JudgedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of one trace."""

    labels: tuple[Label, ...] = ()
    """In the order of steps; the cue is the judge's reason."""
    unlabelled: dict[int, str] = {}
    """Steps without a label, with the reason."""
    notes: tuple[str, ...] = ()
    """Parts of answers that were ignored."""
    known: int = 0
    """Number of labels from the cache."""
    asked: tuple[Asked, ...] = ()
    """The requests that produced the labels, including those of earlier runs."""


class _Judge:
    """Asks one model for labels."""

    def __init__(self, options: JudgeOptions, cache: LabelCache, endpoint: Endpoint) -> None:
        # Why no more requests are sent; None while they are.
        self.refusal: str | None = None
        self._model = options.model
        self._cache, self._endpoint = cache, endpoint
        self._limit = asyncio.Semaphore(options.parallel)
        self._n_failed = 0
        self._temperature: float | None = 0.0

    async def judge(self, turns: Sequence[ShownTurn]) -> JudgedTrace:
        """Label the turns of one trace, which are in the order of steps."""
        names = [
            name_question(self._model, turn, _context(turns, at)) for at, turn in enumerate(turns)
        ]
        work = _Work(turns, names)
        # Of consecutive turns without a cached label, by their indexes.
        batches: list[list[int]] = []
        for at, name in enumerate(names):
            step = turns[at].step
            if cached := self._cache.find(name):
                work.labels[step] = label_of(cached, step)
                work.asked[cached.asked.id] = cached.asked
            elif batches and len(batches[-1]) < BATCH_SIZE and batches[-1][-1] == at - 1:
                batches[-1].append(at)
            else:
                batches.append([at])
        n_known = len(work.labels)
        await asyncio.gather(*(self._ask_batch(work, batch) for batch in batches))
        return JudgedTrace(
            labels=tuple(work.labels[step] for step in sorted(work.labels)),
            unlabelled=dict(sorted(work.problems.items())),
            notes=tuple(dict.fromkeys(work.notes)),
            known=n_known,
            asked=tuple(work.asked.values()),
        )

    async def _ask_batch(self, work: "_Work", batch: Sequence[int]) -> None:
        for at in await self._ask(work, batch):
            await self._ask(work, [at])

    async def _ask(self, work: "_Work", batch: Sequence[int]) -> list[int]:
        """Ask about some turns once; return those still without a label."""
        turns = [work.turns[at] for at in batch]
        question = render_question(turns, _context(work.turns, batch[0]))
        async with self._limit:
            answer = await self._find_answer(question)
        if isinstance(answer, str):
            judged = Judged(problems={turn.step: answer for turn in turns})
        else:
            judged = read_answer(answer.text, {turn.step for turn in turns})
            self._add(work, batch, judged, answer)
        work.notes += judged.notes
        for turn in turns:
            work.problems.pop(turn.step, None)
        work.problems |= judged.problems
        return [at for at in batch if work.turns[at].step in judged.problems]

    def _add(self, work: "_Work", batch: Sequence[int], judged: Judged, answer: Answer) -> None:
        charge = self._endpoint.account.add(answer, self._endpoint.pace.clock.now())
        asked = Asked(
            id=secrets.token_hex(8),
            model=answer.model and answer.model[:_MOST_NAME],
            tokens_in=charge.spent.usage.input,
            tokens_out=charge.spent.usage.output,
            amount_usd=charge.basis.amount_usd,
        )
        work.asked[asked.id] = asked
        for at in batch:
            label = judged.labels.get(work.turns[at].step)
            if label is not None:
                work.labels[label.step] = label
                cached = {
                    "prompt_version": PROMPT_VERSION,
                    "model": self._model,
                    "label": label.label,
                    "confidence": label.confidence,
                    "reason": label.cue,
                    "asked": asked,
                }
                self._cache.write(work.names[at], msgspec.convert(cached, CachedLabel))

    async def _find_answer(self, question: str) -> Answer | str:
        """Return the answer to a question, or why there is none."""
        if self.refusal is not None:
            return self.refusal
        try:
            answer = await self._send(question)
        except ModelError as error:
            self._n_failed += 1
            if isinstance(error, _FOR_ALL) or self._n_failed >= _MOST_FAILURES:
                self.refusal = str(error)
            return str(error)
        self._n_failed = 0
        return answer

    async def _send(self, question: str) -> Answer:
        request = make_request(self._model, question, temperature=self._temperature)
        try:
            return await self._endpoint.ask(request)
        except ModelRequestError as error:
            # Some models reject a temperature; this one then never gets it again.
            if self._temperature is None or "temperature" not in str(error).lower():
                raise
            self._temperature = None
        return await self._send(question)


@dataclass(slots=True)
class _Work:
    """State of one trace while it is judged."""

    turns: Sequence[ShownTurn]
    names: Sequence[str]
    labels: dict[int, Label] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    asked: dict[str, Asked] = field(default_factory=dict)


def _context(turns: Sequence[ShownTurn], at: int) -> Sequence[ShownTurn]:
    return turns[max(0, at - CONTEXT_SIZE) : at]


@dataclass(frozen=True, slots=True)
class JudgeResults:
    """Labels of many traces by one judge."""

    traces: list[JudgedTrace]
    account: Account
    """Tokens and cost of this run, without cached labels."""
    refusal: str | None
    """Why the judge gave up; None if it did not."""


def run_judge(
    options: JudgeOptions,
    cache: LabelCache,
    traces: Iterable[Sequence[ShownTurn]],
    watch: Callable[[int], None] = lambda _: None,
    pace: Pace | None = None,
) -> JudgeResults:
    """Label the turns of many traces; `watch` is called with the number of traces done."""
    try:
        return asyncio.run(_run_judge(options, cache, traces, watch, pace or Pace()))
    except ModelError as error:
        raise InputError(str(error)) from error


async def _run_judge(
    options: JudgeOptions,
    cache: LabelCache,
    traces: Iterable[Sequence[ShownTurn]],
    watch: Callable[[int], None],
    pace: Pace,
) -> JudgeResults:
    key, account = options.address.key or "", Account(options.model)
    redactor = Redactor([key] if len(key) >= SHORTEST_CHAT_KEY else [])
    async with Endpoint(
        options.address,
        account,
        redactor,
        pace,
        _LOGGER,
        retries=options.retries,
        timeout_sec=options.timeout_sec,
    ) as endpoint:
        judge = _Judge(options, cache, endpoint)
        judged: list[JudgedTrace] = []
        tasks: list[asyncio.Task[JudgedTrace]] = []
        # A few traces at a time, so that memory does not grow with their number.
        for turns in traces:
            tasks.append(asyncio.create_task(judge.judge(turns)))
            if len(tasks) > 2 * options.parallel:
                judged.append(await tasks.pop(0))
                watch(len(judged))
        for task in tasks:
            judged.append(await task)
            watch(len(judged))
    if judge.refusal is not None and not any(each.labels for each in judged):
        raise InputError(judge.refusal)
    return JudgeResults(judged, account, judge.refusal)
