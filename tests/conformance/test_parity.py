"""The real harbor beside ours, in one process, on random cases."""

import json
from dataclasses import replace
from importlib.metadata import version
from random import Random

import pytest

from tests.conformance import generators, ours, theirs
from tests.conformance.facts import difference
from tests.conformance.parity import Subject, check_parity
from tests.conformance.values import encode_value
from tests.conformance.vectors import load_lines

pytestmark = pytest.mark.harbor

SUBJECTS = [
    Subject(
        "reward_parse", generators.generate_reward_files, ours.parse_rewards, theirs.parse_rewards
    ),
    Subject("metrics", generators.generate_metric, ours.run_metric, theirs.run_metric),
    Subject("pass_at_k", generators.generate_pass_at_k, ours.run_pass_at_k, theirs.run_pass_at_k),
    Subject("multi_step", generators.generate_steps, ours.run_steps, theirs.run_steps),
]

every_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)


def test_the_harbor_we_compare_with_is_the_one_we_promise() -> None:
    assert version("harbor") == "0.13.1"


@every_subject
def test_harbor_as_we_call_it_still_gives_the_vectors(subject: Subject) -> None:
    found = [
        difference(line["expect"], subject.theirs(line["input"]))
        for line in load_lines(subject.name)
    ]
    assert [text for text in found if text] == []


@every_subject
def test_random_cases_give_what_harbor_gives(subject: Subject) -> None:
    check_parity(subject, cases=600)


@pytest.mark.soak
@every_subject
def test_many_random_cases_give_what_harbor_gives(subject: Subject) -> None:
    check_parity(subject, cases=6000)


def generate_numbers(random: Random) -> ours.Case:
    return {"numbers": [encode_value(random.randint(0, 9)) for _ in range(20)]}


def count_numbers(case: ours.Case) -> dict[str, object]:
    return {"ok": len(case["numbers"])}


def count_numbers_but_no_seven(case: ours.Case) -> dict[str, object]:
    return {"ok": len([number for number in case["numbers"] if number != {"int": "7"}])}


COUNTING = Subject("counting", generate_numbers, count_numbers, count_numbers)


def test_a_difference_is_shrunk_and_printed_as_a_vector() -> None:
    with pytest.raises(AssertionError) as failure:
        check_parity(replace(COUNTING, ours=count_numbers_but_no_seven), cases=50)
    title, expected, found, _, line = str(failure.value).splitlines()
    assert title == "counting: not what harbor gives"
    assert (expected, found) == ('expected {"ok": 1}', '   found {"ok": 0}')
    assert json.loads(line)["input"] == {"numbers": [{"int": "7"}]}
    assert json.loads(line)["expect"] == {"ok": 1}


def test_the_same_seed_gives_the_same_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(seed: str) -> list[ours.Case]:
        seen: list[ours.Case] = []

        def remember(case: ours.Case) -> dict[str, object]:
            seen.append(case)
            return count_numbers(case)

        monkeypatch.setenv("PROCTOR_FUZZ_SEED", seed)
        check_parity(replace(COUNTING, theirs=remember), cases=1)
        return seen

    monkeypatch.setenv("PROCTOR_FUZZ_CASES", "3")
    assert draw("1") == draw("1") != draw("2")
    assert len(draw("1")) == 3
