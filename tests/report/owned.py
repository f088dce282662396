"""Trials that the owner of a ledger sealed, with the key, and whose reward does not follow.

Every signature, proof and digest of theirs is right: only the reward files tell.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from proctor.ledger.entry import TrialScore
from proctor.ledger.sealing import Submission
from tests.ledger.ledgers import record_bytes
from tests.ledger.trials import open_ledger
from tests.report.cases import FILES, SCORE, TRIAL, page_of

ONE = "0x1.0000000000000p+0"
REWARD = "verifier/reward.txt"
DIFFERS, NOT_SHOWN = "reward-differs", "reward-not-shown"
_REST = {path: data for path, data in FILES.items() if path != REWARD}


def certified(rewards: object, basis: str = "reward file") -> TrialScore:
    """A score with a certificate that says so."""
    certificate = {**(SCORE.certificate or {}), "rewards": rewards, "basis": basis}
    return TrialScore(profile=SCORE.profile, certificate=certificate)


def with_steps(*steps: dict[str, object], **files: bytes) -> dict[str, bytes]:
    """The files of a trial of several steps; each is named with an underscore for its dot."""
    result = json.dumps({"trial_name": TRIAL, "step_results": steps}).encode()
    rewards = {
        f"steps/{name}/verifier/reward.{'json' if data.startswith(b'{') else 'txt'}": data
        for name, data in files.items()
    }
    return {**_REST, "result.json": result, **rewards}


def step(name: str, **changes: object) -> dict[str, object]:
    """A step as result.json has it."""
    return {"step_name": name, "verifier_result": {"rewards": {}}, **changes}


def with_result(reward: bytes, **result: object) -> dict[str, bytes]:
    """The files of a trial with another result.json."""
    return {**_REST, REWARD: reward, "result.json": json.dumps(result).encode()}


@dataclass(frozen=True, slots=True)
class Owned:
    """A trial as its owner sealed it."""

    name: str
    files: dict[str, bytes]
    score: TrialScore | None = SCORE
    code: str | None = DIFFERS
    """What `proctor check` calls it; None where nothing is wrong."""
    stated: dict[str, object] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    """Taken out later; no other trial may have the same bytes, or they stay."""


def _text(reward: bytes) -> dict[str, bytes]:
    return {**FILES, REWARD: reward}


def _json(reward: bytes) -> dict[str, bytes]:
    return {**_REST, "verifier/reward.json": reward}


def _says(reward: float | None, breakdown: object) -> dict[str, object]:
    return {"evaluation.reward": reward, "evaluation.breakdown": breakdown}


NOTHING = _says(None, None)
ERROR = {"exception_type": "VerifierTimeoutError"}
_HALF = _says(0.5, {"reward": 0.5})
_HALF_CERTIFIED = certified({"reward": "0x1.0000000000000p-1"}, "step reward files")
_SEVERAL = b'{"style": 0, "tests": 1}'

OWNED = (
    *(
        Owned(
            f"a reward of 0 sealed as 1, by the {basis}",
            _text(b"0"),
            certified({"reward": ONE}, basis),
        )
        for basis in ("reward file", "trial result", "step reward files", "stars", "")
    ),
    Owned("a reward of 0 sealed as 1, without a certificate", _text(b"0"), None),
    Owned("a reward of 1 sealed as none", _text(b"1"), certified(None), stated=NOTHING),
    Owned("a reward of 1 sealed as none, and nothing else", _text(b"1"), None, stated=NOTHING),
    Owned("a certificate without rewards", _text(b"1"), certified(None, "trial result")),
    Owned("a certificate that cannot be read", _text(b"1"), certified("1", "trial result")),
    Owned("a certificate of another number", _text(b"1"), certified({"reward": 1})),
    Owned("a reward file that is no number", _text(b"pass")),
    Owned("an empty reward file", _text(b"")),
    Owned("nan sealed as 1", _text(b"nan"), certified({"reward": "nan"})),
    Owned("infinity sealed as 1", _text(b"-inf"), certified({"reward": ONE})),
    Owned("0_0 sealed as 1", _text(b" 0_0\n")),
    Owned(
        "a reward.txt of 1 beside a reward.json of 0", {**_text(b"1"), **_json(b'{"reward": 0}')}
    ),
    Owned("the last of two equal keys", _json(b'{"reward": 1.0, "reward": 0.0}')),
    Owned(
        "several rewards and none is called so",
        _json(_SEVERAL),
        certified({"style": 0, "tests": 1}),
    ),
    Owned("one reward of several", _json(b'{"reward": 1.0, "style": 0}')),
    Owned("a reward that is text", _json(b'{"reward": "0"}')),
    Owned("a reward.json of null", _json(b"null")),
    Owned("an exception and no verifier result", with_result(b"1", exception_info=ERROR)),
    Owned("verification was disabled", with_result(b"1", config={"verifier": {"disable": True}})),
    Owned("no reward file", _REST, code=NOT_SHOWN),
    Owned(
        "no reward file, by the trial result",
        _REST,
        certified({"reward": ONE}, "trial result"),
        NOT_SHOWN,
    ),
    Owned("no reward file, and only a breakdown", _REST, None, NOT_SHOWN, _says(None, {"a": 1.0})),
    Owned("no evidence at all", {}, code=NOT_SHOWN),
    Owned("a reward file of another name", {**_REST, "verifier/rewards.txt": b"1"}, code=NOT_SHOWN),
    Owned("a withheld reward file", _text(b"1.00"), code=NOT_SHOWN, withheld=(REWARD,)),
    Owned("steps whose mean is another", with_steps(step("a"), step("b"), a=b"1", b=b"0")),
    Owned("steps whose last is another", with_steps(step("a"), step("b"), a=b"0", b=b"0.5")),
    Owned("a step that is not listed", with_steps(step("a"), a=b"1", b=b"0"), code=NOT_SHOWN),
    Owned("a step without its file", with_steps(step("a"), step("b"), a=b"1"), code=NOT_SHOWN),
    Owned("two steps of one name", with_steps(step("a"), step("a"), a=b"1"), code=NOT_SHOWN),
    Owned(
        "steps without a list",
        {**with_steps(step("a"), a=b"1"), "result.json": b"{"},
        code=NOT_SHOWN,
    ),
    Owned(
        "a withheld list of steps",
        with_steps(step("kept"), kept=b"1"),
        code=NOT_SHOWN,
        withheld=("result.json",),
    ),
    Owned("an honest reward", FILES, code=None),
    Owned(
        "honest by a basis of another name", FILES, certified({"reward": ONE}, "trial result"), None
    ),
    Owned(
        "honest nan",
        _text(b"NaN"),
        certified({"reward": "nan"}),
        None,
        _says(None, {"reward": "nan"}),
    ),
    Owned(
        "honest infinity",
        _text(b"-inf"),
        certified({"reward": "-inf"}),
        None,
        _says(None, {"reward": "-inf"}),
    ),
    Owned(
        "honest rewards of several",
        _json(_SEVERAL),
        certified({"style": 0, "tests": 1}),
        None,
        _says(None, {"style": 0, "tests": 1}),
    ),
    Owned("an honest truth", _json(b'{"reward": true}'), code=None),
    Owned(
        "an honest exception",
        with_result(b"1", exception_info=ERROR),
        certified(None),
        None,
        NOTHING,
    ),
    Owned("honestly not scored", _REST, certified(None), None, NOTHING),
    Owned(
        "an honest mean",
        with_steps(step("a"), step("b"), a=b"1", b=b"0"),
        _HALF_CERTIFIED,
        None,
        _HALF,
    ),
    Owned(
        "an honest last",
        with_steps(step("a"), step("b"), a=b"1", b=b"0.5"),
        _HALF_CERTIFIED,
        None,
        _HALF,
    ),
    Owned(
        "an honest failed step",
        with_steps(
            step("a"),
            step("b", verifier_result=None, exception_info=ERROR),
            a=b'{"reward": 0.5}',
            b=b"1",
        ),
        _HALF_CERTIFIED,
        None,
        _HALF,
    ),
)


def make_owned(directory: Path) -> dict[str, bytes]:
    """The case file of each, by its name; all are trials of one ledger."""
    with open_ledger(directory) as ledger:
        names = {f"owned-{number}": each for number, each in enumerate(OWNED)}
        ledger.seal_all([_submit(name, each, directory / name) for name, each in names.items()])
        for name, each in names.items():
            if each.withheld:
                row = ledger.find(name)
                ledger.withhold(row, reason="why not", author="ana", evidence=each.withheld)
        return {each.name: page_of(ledger, name) for name, each in names.items()}


def _submit(name: str, owned: Owned, root: Path) -> Submission:
    for path, data in owned.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    stated = {**_says(1.0, {"reward": 1.0}), **owned.stated}
    return Submission(
        record=record_bytes(name, **stated),
        where=name,
        root=root,
        evidence=tuple(owned.files),
        score=owned.score,
    )
