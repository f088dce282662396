"""Read reward files with harbor's rules, precedence and error messages.

reward.json takes precedence when it exists, even empty or invalid; else reward.txt; else the trial
is not scored. Text is decoded as UTF-8 regardless of the locale: harbor always runs with UTF-8, and
a score must not depend on LANG.

Does not write, and reads nothing of the trial but these files.
"""

import errno
import json
import math
import re
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from proctor.errors import (
    LinkedRewardError,
    RewardError,
    RewardFileEmptyError,
    RewardFileNotFoundError,
    VerifierOutputParseError,
)
from proctor.files import read_inside, read_small
from proctor.json_values import check_values
from proctor.reward.number import Rewards
from proctor.reward.profile import DEFAULT_PROFILE, Profile
from proctor.reward.score import Score, Scored, Unscored
from proctor.sentence import render_limit

# The deepest reward.json that harbor's interpreter parses; one more is a RecursionError there.
_MAX_NESTING = 1493

LARGEST = 16 << 20
"""Largest reward file in bytes. harbor has no limit, so a verifier that writes a gigabyte makes
every reader of the job hold it in memory."""

# Errors that mean the file does not exist; any other means it cannot be read.
_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))

_JSON_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def read_score(
    verifier_dir: str, profile: Profile = DEFAULT_PROFILE, trial: str | None = None
) -> Score:
    """Read the score from a trial's verifier directory. Never raises because of file contents.

    With `trial`, the trial's directory, links that lead out of it are not followed.
    """
    try:
        rewards = load_rewards(verifier_dir, profile, trial)
    except RewardError as error:
        return Unscored(str(error), type(error).__name__, error.reason_code)
    except ValueError as error:
        reason = f"{verifier_dir}/reward.json: {_coerce().describe_refusal(error)}"
        return Unscored(reason, type(error).__name__, RewardError.reason_code)
    except (OSError, RecursionError) as error:
        reason = f"{verifier_dir}: {error}"
        return Unscored(reason, type(error).__name__, RewardError.reason_code)
    if rewards is None:
        return Unscored(f"{verifier_dir}/reward.json: null; the verifier declined to score")
    return Scored(rewards)


def load_rewards(
    verifier_dir: str, profile: Profile = DEFAULT_PROFILE, trial: str | None = None
) -> Rewards | None:
    """Read the rewards of a verifier directory; None when reward.json is null.

    With `trial`, the trial's directory, links that lead out of it are not followed; harbor follows
    every link.

    Raises:
        RewardError: the file is missing, empty or not parsable.
        ValidationError: the JSON is not a map of numbers (pydantic's class, as in harbor).
        OSError: the file is a directory, or unreadable.
        RecursionError: the JSON is nested deeper than harbor's interpreter allows.
    """
    text_path, json_path = f"{verifier_dir}/reward.txt", f"{verifier_dir}/reward.json"
    data = _read_present(json_path, "JSON", trial)
    if data is not None:
        return parse_reward_json(data, json_path, profile)
    data = _read_present(text_path, "text", trial)
    if data is not None:
        return parse_reward_text(data, text_path, profile)
    raise RewardFileNotFoundError(f"No reward file found at {text_path} or {json_path}")


def parse_reward(data: bytes, path: str, profile: Profile = DEFAULT_PROFILE) -> Rewards | None:
    """Parse a reward file; its name says of which kind it is."""
    parse = parse_reward_json if path.endswith(".json") else parse_reward_text
    return parse(data, path, profile)


def parse_reward_text(data: bytes, path: str, profile: Profile = DEFAULT_PROFILE) -> Rewards:
    """Parse reward.txt: one number, under the key `reward`."""
    value = _parse(data, path, "text", float)
    if profile.refuses_odd_rewards and not math.isfinite(value):
        raise VerifierOutputParseError(f"Non-finite reward {value!r} in text file {path}")
    return {"reward": value}


def parse_reward_json(data: bytes, path: str, profile: Profile = DEFAULT_PROFILE) -> Rewards | None:
    """Parse reward.json: a map of numbers, or None for null."""
    document = _parse(data, path, "JSON", _parse_json)
    if profile.refuses_odd_rewards:
        _check_finite_numbers(document, path)
    # Plain numbers, the usual case, need no pydantic. `type(…) in`, since bool is an int.
    if isinstance(document, dict) and all(
        type(value) in (int, float) for value in document.values()
    ):
        return document
    return validate_rewards(document)


def validate_rewards(document: object) -> Rewards | None:
    """Coerce a parsed document to rewards as harbor does."""
    rewards: Rewards | None = _coerce().coerce_rewards(document)
    return rewards


def _coerce() -> ModuleType:
    return import_module("proctor.reward.coerce")


def _parse[T](data: bytes, path: str, kind: str, convert: Callable[[str], T]) -> T:
    if not data:
        raise RewardFileEmptyError(f"Reward file is empty at {path}")
    try:
        # Text mode turns \r\n and \r into \n, which shifts the position in a JSON error message.
        text = data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        return convert(text)
    except (ValueError, TypeError) as error:
        message = f"Failed to parse rewards from {kind} file {path}"
        raise VerifierOutputParseError(message) from error


def _parse_json(text: str) -> object:
    check_values(text.encode())
    if text.count("[") + text.count("{") > _MAX_NESTING:
        _check_nesting(text)
    document: object = json.loads(text)
    return document


def _check_nesting(text: str) -> None:
    """Refuse the nesting depth that harbor's interpreter refuses, whatever this one allows."""
    depth = 0
    for match in _JSON_STRING_OR_BRACKET.finditer(text):
        bracket = match.group()
        if bracket in "[{":
            depth += 1
            if depth > _MAX_NESTING:
                _check_sound_so_far(text[: match.start()])
                kind = "array" if bracket == "[" else "object"
                raise RecursionError(
                    "maximum recursion depth exceeded while decoding a JSON "
                    f"{kind} from a unicode string"
                )
        elif bracket in "]}":
            depth -= 1


def _check_sound_so_far(cut_off: str) -> None:
    """Raise the first syntax error in truncated JSON text, other than its being truncated.

    harbor's parser reports a syntax error that comes before the nesting limit is reached.
    """
    try:
        json.loads(cut_off)
    except json.JSONDecodeError as error:
        if error.pos < len(cut_off) or error.msg != "Expecting value":
            raise


def _check_finite_numbers(document: object, path: str) -> None:
    values = document.values() if isinstance(document, dict) else [document]
    for value in values:
        if not isinstance(value, int | float):
            raise VerifierOutputParseError(f"Non-numeric reward {value!r} in JSON file {path}")
        if isinstance(value, float) and not math.isfinite(value):
            raise VerifierOutputParseError(f"Non-finite reward {value!r} in JSON file {path}")


def _read_present(path: str, kind: str, trial: str | None) -> bytes | None:
    """Read a file; None if it does not exist, or is a dangling or circular link."""
    try:
        return read_small(path, LARGEST) if trial is None else read_inside(trial, path, LARGEST)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        if error.errno == errno.EXDEV:
            raise LinkedRewardError(
                f"{path}: not read: {error.filename} is a link that leads out of the trial; "
                "expected a file of the trial itself"
            ) from error
        if error.errno == errno.EFBIG:
            message = f"Failed to parse rewards from {kind} file {path}"
            reason = f"it is larger than {render_limit(LARGEST)}; expected a few numbers"
            raise VerifierOutputParseError(f"{message}: {reason}") from error
        raise
