"""Policies as TOML: what is misspelt is refused with a sentence, and the bundled ones are sound."""

from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.errors import PolicyError
from proctor.report.policy.document import list_bundled, load_policy, parse_policy
from proctor.report.policy.reason import Check, PolicyCode

HEAD = 'format = "proctor-policy-1"\nname = "p"\n'
DOCS = Path(__file__).parents[3] / "docs" / "reference" / "policies.md"


def parse(text: str) -> object:
    return parse_policy((HEAD + text).encode(), "p.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("strict = true", "'strict' is not a key of a policy; expected one of format, name, about"),
        ("[tasks]\nnamse = []", "[tasks] has 'namse'; expected one of names, count, digests"),
        ("[attempts]\nminimum = 0", "attempts.minimum: expected `int` >= 1"),
        ("[attempts]\nminimum = 2\nexact = 2", "[attempts] has both minimum and exact"),
        ("[limits]\ndefault = 1", "limits.default: expected `bool`, got `int`"),
        ("[reviews]\nshare = 1.5", "reviews.share: expected `float` <= 1.0"),
        ("[tasks]\ncount = 3\nnames = ['a']", "[tasks] count is 3, but 1 are named"),
        ("[tasks]\nnames = ['a', 'a']", "[tasks] names has a duplicate"),
        ("[tasks.digests]\na = 'md5'", "[tasks.digests] 'a' has 'md5'; expected sha256: and 64"),
        ("[traces]\nneeded = 'some'", "traces.needed: invalid enum value 'some'"),
        ("[replacements]\ncauses = ['luck']", "replacements.causes[0]: invalid enum value 'luck'"),
        (
            "[integrity]\nno_open_findings = true\ntolerated = ['x']",
            "[integrity] tolerates 'x'; expected finding codes: reward-planted",
        ),
        ("[integrity]\ntolerated = ['output-cut']", "set no_open_findings = true"),
        (
            "[integrity]\nrefused = ['output-cut']",
            "[integrity] refuses findings without a rule; set no_open_findings = true",
        ),
        (
            "[integrity]\nlevel = 'alarm'",
            "[integrity] has a level without a rule; set no_open_findings = true",
        ),
        (
            "[integrity]\nno_open_findings = true\nrefused = ['x']",
            "[integrity] refuses 'x'; expected finding codes: reward-planted",
        ),
        (
            "[integrity]\nno_open_findings = true\nlevel = 'error'",
            "integrity.level: invalid enum value 'error'",
        ),
        (
            "[integrity]\nno_open_findings = true\nrefused = ['output-cut']\n"
            "tolerated = ['output-cut']",
            "[integrity] both tolerates and refuses 'output-cut'; expected one of them",
        ),
        ("about = {}", "about is a table; expected a string"),
        ("[tasks\n", "not TOML: "),
    ],
)
def test_what_no_policy_can_mean_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse(text)
    assert str(refused.value).startswith("p.toml: ")
    assert sentence in str(refused.value)


def test_another_format_is_refused() -> None:
    with pytest.raises(PolicyError, match="format is 'proctor-policy-9'; expected"):
        parse_policy(b'format = "proctor-policy-9"\nname = "p"', "p.toml")
    with pytest.raises(PolicyError, match="format is None"):
        parse_policy(b"", "p.toml")
    with pytest.raises(PolicyError, match="missing required field `name`"):
        parse_policy(b'format = "proctor-policy-1"', "p.toml")


def test_a_policy_that_is_not_there_is_told_with_the_names_of_those_that_are() -> None:
    with pytest.raises(PolicyError, match="expected a policy as TOML, or one of leaderboard, term"):
        load_policy("leaderbord")


def test_the_bundled_policies_can_be_read_and_bear_their_names() -> None:
    assert list_bundled() == ["leaderboard", "terminal-bench-2-1"]
    for name in list_bundled():
        assert load_policy(name).name == name


def test_the_tasks_of_terminal_bench_are_the_published_ones() -> None:
    rule = load_policy("terminal-bench-2-1").tasks
    digests = sorted(rule.digests_of(name)[0].removeprefix("sha256:") for name in rule.digests)
    assert len(digests) == rule.count == 89
    published = "0fd3dbc55e6d7a6207dc0d93c5e933684b3ec87ac12941de0420b73c08627ee5"
    assert sha256_hex(",".join(digests).encode()) == published


def test_every_check_and_every_reason_is_in_the_docs() -> None:
    text = DOCS.read_text()
    for word in (*Check, *PolicyCode):
        assert f"`{word}`" in text, word
