"""The process in which inspect_ai reads logs: `python -P -m proctor.exchange.inspect.worker`.

inspect_ai is large and starts slowly, and whatever a log does to it ends this process alone. Each
line of standard input asks for a log or for one of its samples, and a line of JSON answers:

    {"log": PATH}
        {"log": {"version": 2, "status": …, "eval": …, "plan": …}, "samples": [[ID, EPOCH], …]}
    {"log": PATH, "sample": [ID, EPOCH]}
        {"sample": the sample as Inspect writes it, "messages": […], "answer": its last words}
    anything that cannot be read
        {"refused": why}

Attachments are put in place in `messages` and `answer`. Imports nothing else of proctor.
"""

import json
import os
import sys
from functools import lru_cache
from typing import Any, Final

from inspect_ai.log import (
    EvalLog,
    EvalSample,
    condense_sample,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    resolve_sample_attachments,
)
from pydantic import ValidationError
from pydantic_core import to_json

# What Inspect writes: what a sample does not say is left out.
_WRITTEN: Final[dict[str, Any]] = {"mode": "json", "exclude_unset": True, "exclude_none": True}
_HEADER: Final = {"version", "status", "eval", "plan", "error"}


def answer(request: dict[str, Any]) -> bytes:
    """The answer to one request, without the end of the line."""
    if "sample" in request:
        return _read_sample(request["log"], *request["sample"])
    return _read_header(request["log"])


def _read_header(path: str) -> bytes:
    if path.endswith(".json"):
        log, samples = _read_document(path)
        keys = list(samples)
    else:
        log = read_eval_log(path, header_only=True)
        # A list: of two samples with the same id and epoch, Inspect reads the last.
        keys = list({(s.id, s.epoch): s for s in read_eval_log_sample_summaries(path)})
    header = log.model_dump(include=_HEADER, **_WRITTEN)
    return json.dumps({"log": header, "samples": keys}).encode()


@lru_cache(maxsize=1)
def _read_document(path: str) -> tuple[EvalLog, dict[tuple[int | str, int], EvalSample]]:
    """A log in the JSON form, which can only be read whole."""
    log = read_eval_log(path)
    return log, {(each.id, each.epoch): each for each in log.samples or ()}


def _read_sample(path: str, sample_id: int | str, epoch: int) -> bytes:
    if path.endswith(".json"):
        sample = _read_document(path)[1][sample_id, epoch]
    else:
        sample = read_eval_log_sample(path, sample_id, epoch)
    # The events of a long sample are many times its messages.
    spoken = resolve_sample_attachments(sample.model_copy(update={"events": []}), "full")
    parts = {
        "sample": json.dumps(condense_sample(sample).model_dump(**_WRITTEN)).encode(),
        "messages": to_json(
            [each.model_dump(**_WRITTEN) for each in spoken.messages], inf_nan_mode="null"
        ),
        "answer": json.dumps(spoken.output.completion).encode(),
    }
    return b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), each) for name, each in parts.items())


def _explain(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Answer until standard input ends."""
    # Whatever inspect_ai prints must not get between the answers.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        for line in sys.stdin.buffer:
            try:
                found = answer(json.loads(line))
            except Exception as error:  # noqa: BLE001 - of any kind: it is the log's
                found = json.dumps({"refused": _explain(error)}).encode()
            out.write(found + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
