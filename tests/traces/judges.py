"""A judge behind a real endpoint on loopback that answers what a test wants, well or badly."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.agents.chat.server import Connection, Reply, completion

type Answering = Callable[[list[dict[str, Any]]], object]
"""From the turns that are asked about to what is said of them."""


def turns_in(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns that a request asks about."""
    question = json.loads(body["messages"][-1]["content"])
    turns: list[dict[str, Any]] = question["turns"]
    return turns


def label_all(label: str = "execution", **changes: Any) -> Answering:
    """The same label for every turn."""
    return lambda turns: {
        "labels": [
            {"turn": turn["turn"], "label": label, "confidence": 0.9, "reason": "r", **changes}
            for turn in turns
        ]
    }


def judges(answer: Answering, **changes: Any) -> Reply:
    """Answers a question by what it asks."""

    def reply(connection: Connection) -> None:
        turns = turns_in(connection.body)
        said = answer(turns)
        text = said if isinstance(said, str) else json.dumps(said)
        document = completion({"content": text}, **changes)
        connection.send(200, json.dumps(document).encode())

    return reply


def steps_asked(bodies: Sequence[dict[str, Any]]) -> list[list[int]]:
    """The steps that each request asked about."""
    return [[turn["turn"] for turn in turns_in(body)] for body in bodies]
