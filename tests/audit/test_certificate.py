"""A certificate can be added up again by anyone, and no number in it can be changed unseen."""

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.audit.certificate import (
    FORMAT,
    Certificate,
    Difference,
    check_certificate,
    find_unchecked,
    make_certificate,
    parse_certificate,
    render_certificate,
    write_number,
)
from proctor.audit.scoring import score_jobs
from proctor.errors import CertificateError
from proctor.harbor.job import load_job
from proctor.reward.profile import DEFAULT_PROFILE, HARBOR_0_25
from tests.audit.directories import (
    COPIED,
    JOBS,
    Document,
    copy_job,
    edit_json,
    every_job,
    find_trial,
    make_job,
)


def certify(*jobs: Path) -> Certificate:
    scoring = score_jobs([load_job(str(job)) for job in jobs], DEFAULT_PROFILE, add_up=False)
    return make_certificate(scoring)


def document_of(certificate: Certificate) -> Document:
    return json.loads(render_certificate(certificate))


def check(document: Document, tmp_path: Path) -> Difference | None:
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(document))
    return check_certificate(parse_certificate(path.read_bytes(), str(path)))


def changed(number: int | str, change: Callable[[float], float]) -> int | str:
    return write_number(change(float.fromhex(number))) if isinstance(number, str) else number + 1


def next_up(value: float) -> float:
    return 0.0 if math.isnan(value) else math.nextafter(value, math.inf)


type Place = tuple[Document, str]
"""A container of a certificate, and the key of a number in it."""


def result_places(document: Document) -> Iterator[Place]:
    """Every number that follows from the operands."""
    for group in document["groups"]:
        for metric in group["metrics"]:
            yield from ((metric["result"], key) for key in metric["result"])
        yield from ((group["pass_at_k"], key) for key in group["pass_at_k"])
    yield from ((document["outcome"], key) for key in ("score", "resolved", "total"))


def operand_places(document: Document) -> Iterator[Place]:
    """Every operand of a group that has results."""
    for group in document["groups"]:
        for trial in group["trials"] if group["metrics"] else ():
            yield from ((trial["rewards"] or {}, key) for key in trial["rewards"] or {})


@pytest.fixture
def binary() -> Document:
    return document_of(certify(COPIED / "01-binary-oracle-k1"))


@every_job
def test_a_certificate_of_any_job_checks_out(name: str, tmp_path: Path) -> None:
    certificate = certify(JOBS / name)
    path = tmp_path / "certificate.json"
    path.write_bytes(render_certificate(certificate))
    assert parse_certificate(path.read_bytes(), str(path)) == certificate
    assert check_certificate(certificate) is None
    assert find_unchecked(certificate) == []


@every_job
def test_every_changed_result_is_found(name: str, tmp_path: Path) -> None:
    document = document_of(certify(JOBS / name))
    for index in range(len(list(result_places(document)))):
        tampered = copy.deepcopy(document)
        container, key = list(result_places(tampered))[index]
        container[key] = changed(container[key], next_up)
        difference = check(tampered, tmp_path)
        assert difference is not None
        assert difference.where.endswith(key)


@every_job
def test_every_changed_operand_is_found(name: str, tmp_path: Path) -> None:
    document = document_of(certify(JOBS / name))
    for index in range(len(list(operand_places(document)))):
        tampered = copy.deepcopy(document)
        container, key = list(operand_places(tampered))[index]
        container[key] = changed(container[key], lambda value: value + 1.0)
        if name != "12-nan-oracle":  # a sum with nan in it is nan whatever else is added
            assert check(tampered, tmp_path) is not None


@pytest.mark.parametrize(
    ("change", "bit"),
    [
        (lambda value: -value, "the sign (bit 63)"),
        (lambda value: value * 2, "exponent bit 0 (bit 52 of 64)"),
        (lambda value: value * 4, "exponent bit 10 (bit 62 of 64)"),
        (next_up, "fraction bit 0 (bit 0 of 64)"),
        (lambda value: value + 0.25, "fraction bit 51 (bit 51 of 64)"),
        (lambda value: math.inf, "exponent bit 10 (bit 62 of 64)"),
    ],
)
def test_the_first_differing_bit_is_named(
    binary: Document, tmp_path: Path, change: Callable[[float], float], bit: str
) -> None:
    result = binary["groups"][0]["metrics"][0]["result"]
    result["mean"] = "0x1.0000000000000p-1"
    for trial, value in zip(binary["groups"][0]["trials"], [1.0, 0.5, 0.0], strict=True):
        trial["rewards"]["reward"] = value.hex()
    binary["outcome"].update(score=(0.5).hex(), resolved=2)
    assert check(binary, tmp_path) is None
    result["mean"] = change(0.5).hex()
    difference = check(binary, tmp_path)
    assert difference is not None
    assert difference.first_bit == bit
    assert str(difference) == (
        f"groups[0] oracle__binary.metrics[0].mean.mean: stated {change(0.5).hex()}, "
        f"the operands give 0x1.0000000000000p-1; first differing bit: {bit}"
    )


def test_an_int_is_not_the_float_of_its_value(binary: Document, tmp_path: Path) -> None:
    binary["outcome"]["score"] = 1
    difference = check(binary, tmp_path)
    assert difference is not None
    assert (difference.stated, difference.first_bit) == ("1", "")
    assert "first differing bit" not in str(difference)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("status", "failed"),
        ("resolved", 3),
        ("total", 2),
        ("reason_code", "timed_out"),
    ],
)
def test_a_changed_outcome_is_found(
    binary: Document, tmp_path: Path, where: str, value: object
) -> None:
    binary["outcome"][where] = value
    difference = check(binary, tmp_path)
    assert difference is not None
    assert difference.where == f"outcome.{where}"


def test_a_hidden_exception_is_found(tmp_path: Path) -> None:
    document = document_of(certify(COPIED / "17-agent-hang"))
    for trial in document["groups"][0]["trials"]:
        trial["exception"] = None
    difference = check(document, tmp_path)
    assert difference is not None
    assert difference.where == "outcome.status"


def test_a_trial_left_out_is_found(binary: Document, tmp_path: Path) -> None:
    del binary["groups"][0]["trials"][0]
    difference = check(binary, tmp_path)
    assert difference is not None
    assert difference.recomputed == "0x1.0000000000000p+0"


def test_a_result_under_another_name_is_found(binary: Document, tmp_path: Path) -> None:
    result = binary["groups"][0]["metrics"][0]["result"]
    result["max"] = result.pop("mean")
    difference = check(binary, tmp_path)
    assert difference is not None
    assert (difference.stated, difference.recomputed) == ("names ['max']", "names ['mean']")


@pytest.mark.parametrize("origin", ["carried over", "failed", "anything"])
def test_a_metric_of_ours_is_checked_whatever_it_calls_itself(
    binary: Document, tmp_path: Path, origin: str
) -> None:
    metric = binary["groups"][0]["metrics"][0]
    metric.update(origin=origin, result={"mean": (1.0).hex()})
    assert check(binary, tmp_path) is not None


def test_pass_at_k_is_checked_also_where_it_should_not_be(tmp_path: Path) -> None:
    document = document_of(certify(COPIED / "04-binary-scripted-k5"))
    document["pass_at_k"] = False
    difference = check(document, tmp_path)
    assert difference is not None
    assert difference.recomputed == "names []"


def test_a_metric_without_operands_has_no_value(binary: Document, tmp_path: Path) -> None:
    binary["groups"][0]["trials"] = []
    difference = check(binary, tmp_path)
    assert difference is not None
    assert difference.recomputed == "no value: division by zero"


def test_a_metric_without_value_checks_out(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    reward = find_trial(job, "a") / "verifier" / "reward.json"
    reward.write_text(f'{{"reward": {10**400}}}')
    certificate = certify(job)
    assert certificate.groups[0].metrics[0].result is None
    assert check(document_of(certificate), tmp_path) is None


def test_nan_and_infinity_go_through_a_certificate(tmp_path: Path) -> None:
    document = document_of(certify(COPIED / "12-nan-oracle"))
    group = document["groups"][0]
    values = {value for trial in group["trials"] for value in trial["rewards"].values()}
    assert values == {"nan", "inf", "0x1.0000000000000p+0"}
    assert group["metrics"][0]["result"] == {"mean": "nan"}
    assert document["outcome"]["reason_code"] == "harbor_result_malformed"
    assert check(document, tmp_path) is None


def test_the_profile_is_on_record() -> None:
    job = load_job(str(COPIED / "12-nan-oracle"), HARBOR_0_25)
    certificate = make_certificate(score_jobs([job], HARBOR_0_25))
    assert certificate.profile == "harbor-0.25"
    assert certificate.groups[0].metrics[0].result == {"mean": (1 / 3).hex()}
    assert check_certificate(certificate) is None


def test_the_published_result_is_named_by_its_digest(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    (with_result,) = certify(job).jobs
    (job / "result.json").unlink()
    (without,) = certify(job).jobs
    assert re.fullmatch("[0-9a-f]{64}", with_result.result_sha256 or "")
    assert without.result_sha256 is None


def test_a_script_is_said_not_to_be_checked(tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    metric = {"type": "uv-script", "kwargs": {"script_path": "metric.py"}}
    edit_json(job / "config.json", lambda config: config.update(metrics=[metric]))
    published = [{"best": 0.5, "label": "good"}]
    edit_json(
        job / "result.json",
        lambda result: result["stats"]["evals"]["oracle__binary"].update(metrics=published),
    )
    certificate = certify(job)
    assert find_unchecked(certificate) == ["metric uv-script of oracle__binary (carried over)"]
    assert check(document_of(certificate), tmp_path) is None


BAD: list[tuple[str, Callable[[Document], object], str]] = [
    ("format", lambda found: found.update(format="v2"), f"format is 'v2'; expected '{FORMAT}'"),
    ("no groups", lambda found: found.pop("groups"), "missing required field `groups`"),
    ("planned", lambda found: found.update(planned="3"), "Expected `int`, got `str`"),
    (
        "operand",
        lambda found: found["groups"][0]["trials"][0]["rewards"].update(reward="much"),
        "oracle-wrong__2j385Vz.reward: 'much' is not a number; expected an int or a float",
    ),
    (
        "result",
        lambda found: found["groups"][0]["metrics"][0]["result"].update(mean=True),
        "mean: True is not a number",
    ),
    (
        "result beyond all floats",
        lambda found: found["groups"][0]["metrics"][0]["result"].update(mean="0x1p99999"),
        "'0x1p99999' is not a number",
    ),
    (
        "metric",
        lambda found: found["groups"][0]["metrics"][0].update(metric="median"),
        "metric 'median'; expected one of mean, max, min, sum, uv-script",
    ),
]


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in BAD], ids=[r[0] for r in BAD])
def test_a_bad_certificate_is_refused_with_a_sentence(
    binary: Document, tmp_path: Path, change: Callable[[Document], object], message: str
) -> None:
    change(binary)
    with pytest.raises(CertificateError, match=re.escape(message)):
        check(binary, tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "torn or not JSON: Expecting value"),
        (b'{"format": "proc', "torn or not JSON: Unterminated string"),
        (b"[]", "not a score certificate: Expected `object`, got `array`"),
        (b"\xff\xfe\x00", "torn or not JSON"),
        (b"[" * 100_000, "torn or not JSON: maximum recursion depth"),
    ],
)
def test_what_is_no_certificate_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "certificate.json"
    path.write_bytes(data)
    with pytest.raises(CertificateError, match=re.escape(message)):
        parse_certificate(path.read_bytes(), str(path))


def test_a_name_that_is_in_two_jobs_keeps_its_own_exception(tmp_path: Path) -> None:
    jobs = [copy_job("01-binary-oracle-k1", tmp_path / side) for side in ("left", "right")]
    error = {"exception_type": "AgentTimeoutError", "exception_message": ""}
    for path in jobs[0].glob("pass-two*/result.json"):
        edit_json(path, lambda trial: trial.update(exception_info=error))
    for path in jobs[1].glob("*/result.json"):
        edit_json(path, lambda trial: trial.update(id=None))
    loaded = [load_job(str(job)) for job in jobs]
    certificate = make_certificate(score_jobs(loaded, DEFAULT_PROFILE))
    exceptions = [trial.exception for trial in certificate.groups[0].trials]
    assert exceptions == [None, "AgentTimeoutError", None, None, None, None]


def make_job_in(around: Path, rewards: dict[str, list[str]]) -> Path:
    around.mkdir()
    return make_job(around / "job", rewards)


def test_a_name_that_is_in_two_jobs_is_two_operands(tmp_path: Path) -> None:
    jobs = [make_job_in(tmp_path / side, {"a": ["1"]}) for side in ("left", "right")]
    certificate = certify(*jobs)
    trials = [(trial.job, trial.trial) for trial in certificate.groups[0].trials]
    assert trials == [(0, "a__job1"), (1, "a__job1")]
    assert check_certificate(certificate) is None


def test_a_trial_that_is_an_operand_twice_is_found(binary: Document, tmp_path: Path) -> None:
    trials = binary["groups"][0]["trials"]
    trials.append(trials[-1])
    binary["planned"] = 4
    assert str(check(binary, tmp_path)) == (
        f"trial {trials[-1]['trial']}: stated 2 times, the operands give a trial is an operand once"
    )


def test_more_operands_than_planned_are_found(binary: Document, tmp_path: Path) -> None:
    binary["planned"] = 2
    assert str(check(binary, tmp_path)) == "planned: stated 2, the operands give 3 trials"


def test_half_a_character_in_a_reward_key_goes_through_a_certificate(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    reward = find_trial(job, "a") / "verifier" / "reward.json"
    reward.write_text('{"\\ud800": 1, "speed": 0.5}')
    certificate = certify(job)
    parsed = parse_certificate(render_certificate(certificate), "certificate.json")
    assert parsed == certificate
    assert parsed.groups[0].trials[0].rewards == {"\ud800": 1, "speed": (0.5).hex()}
    assert check_certificate(parsed) is None
