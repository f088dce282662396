"""`complete` is a promise that is looked into."""

import pytest

from proctor.errors import IncompleteRecordError, RecordError
from proctor.record.rules import (
    PLACEHOLDERS,
    REQUIRED,
    check_complete,
    check_dataset_id,
    check_record,
    explain_partial,
    find_missing,
    find_problems,
)
from tests.record.samples import complete, made

REVISION, TOOLS, FILES = REQUIRED


def files(*hashes: str) -> list[dict[str, str]]:
    return [{"path": f"{index}.txt", "hash": text} for index, text in enumerate(hashes)]


def test_a_complete_record_lacks_nothing() -> None:
    assert find_missing(complete()) == []
    check_complete(complete())
    check_record(complete())


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        (REVISION, None, "is missing"),
        (REVISION, "", "is blank"),
        (REVISION, " \n", "is blank"),
        (REVISION, "unknown", "is 'unknown', which is not a revision"),
        (REVISION, " Latest ", "is ' Latest ', which is not a revision"),
        (TOOLS, None, "is missing"),
        (TOOLS, {}, "is empty"),
        (TOOLS, {"bash": "5.2", "python": " "}, "has no version for 'python'"),
        (TOOLS, {"": "5.2"}, "has no version for ''"),
        (
            TOOLS,
            {"bash": "5.2", "python": "N/A"},
            "has 'N/A' as the version of 'python', which is not a version",
        ),
        (FILES, None, "is missing"),
        (FILES, [], "is empty"),
        (
            FILES,
            files("0" * 64, "hash-123"),
            "has 'hash-123' as the hash of '1.txt', which is not a",
        ),
        (FILES, files("A" * 64), "which is not a SHA-256"),
        (FILES, files("sha256:" + "0" * 64), "which is not a SHA-256"),
        (FILES, files("0" * 64 + "\n"), "which is not a SHA-256"),
        (FILES, files("0" * 64) * 2, "lists '0.txt' more than once"),
        (
            FILES,
            [{"path": path, "hash": "0" * 64} for path in ("a/b", "c", "a/./b")],
            "lists 'a/b' more than once",
        ),
    ],
)
def test_a_hollow_field_is_missing(field: str, value: object, why: str) -> None:
    record = made(**{field: value})
    (missing,) = find_missing(record)
    assert missing.field == field
    assert why in missing.why
    assert missing.remedy
    with pytest.raises(IncompleteRecordError) as caught:
        check_complete(record)
    assert caught.value.missing == (field,)
    assert f"{field} {missing.why}" in str(caught.value)


@pytest.mark.parametrize("word", sorted(PLACEHOLDERS))
def test_no_placeholder_is_a_revision_or_a_version(word: str) -> None:
    record = made(**{REVISION: word.upper(), TOOLS: {"python": word}})
    assert [missing.field for missing in find_missing(record)] == [REVISION, TOOLS]


@pytest.mark.parametrize("text", ["0.13.1", "a1b2c3", "local-2", "unknown-fork 1.2", "v1"])
def test_what_only_holds_a_placeholder_is_real(text: str) -> None:
    assert find_missing(made(**{REVISION: text, TOOLS: {"python": text}})) == []


@pytest.mark.parametrize(
    "text",
    [
        "aec-core@0.1.0",
        "alone",
        f"repository:aec-core@{'b' * 40}:datasets/aec-core.toml",
        f"bundle:aec-core@{'c' * 64}",
        "org/name@1..2",
        "x" * 300,
    ],
)
def test_forms_of_a_dataset_s_name_pass(text: str) -> None:
    check_dataset_id(text)
    assert made(dataset_id=text).dataset_id == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is blank"),
        (" \t", "is blank"),
        ("x" * 301, "of 301 characters"),
        ("a@1\x1b[2J", "characters that cannot be printed"),
        ("a\u202e@1", "characters that cannot be printed"),
        ("../a@1", "a path with .. in it"),
        ("a\\..\\b@1", "a path with .. in it"),
        (f"repository:a@{'b' * 40}:../../x", "a path with .. in it"),
    ],
)
def test_a_dataset_s_name_that_nobody_could_look_up_is_refused(text: str, why: str) -> None:
    with pytest.raises(RecordError) as refused:
        check_dataset_id(text)
    assert why in str(refused.value)
    assert str(refused.value).isprintable()


def test_all_that_is_missing_is_listed_in_the_order_of_the_format() -> None:
    record = made(**{FILES: None, TOOLS: None, REVISION: None})
    with pytest.raises(IncompleteRecordError) as caught:
        check_complete(record)
    assert caught.value.missing == REQUIRED
    message = str(caught.value)
    assert message.index(REVISION) < message.index(TOOLS) < message.index(FILES)
    assert message.startswith("'trial-001' is not complete: ")


def test_a_partial_record_says_what_it_lacks_and_breaks_no_rule() -> None:
    record = made("g1-partial.json")
    assert [missing.field for missing in find_missing(record)] == list(REQUIRED)
    assert find_problems(record) == []
    check_record(record)
    revision, tools, inputs = explain_partial(record)
    assert revision == (
        "agent.adapter_revision is missing; "
        "pass --agent-version-command CMD to `proctor run`, such as 'git rev-parse HEAD'"
    )
    assert "lock.json" in tools
    assert "--task DIR" in inputs


def test_a_record_of_a_trial_that_did_not_end_has_a_reason_too() -> None:
    record = complete().model_copy(update={"completeness": "partial"})
    (why,) = explain_partial(record)
    assert why.startswith("the trial did not end")
    assert explain_partial(complete()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trial_id": "../x"}, "trial_id is '../x'; expected 1 to 200"),
        ({"experiment_id": "_x"}, "experiment_id is '_x'; expected 1 to 200"),
        ({"timestamp": "2026-03-13T10:00:00"}, "without an offset from UTC"),
        ({REVISION: " "}, "agent.adapter_revision is blank"),
        ({"cost.cache_write_tokens": 5000}, "5,000 cached tokens"),
        (
            {
                "evaluation.annotations": [
                    {"reviewer_id": "r", "timestamp": "2026-01-01T00:00:00", "judgment": "pass"}
                ]
            },
            r"evaluation.annotations\[0\].timestamp is 2026-01-01T00:00:00, without",
        ),
    ],
)
def test_a_new_record_holds_to_every_rule(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        check_record(made(**changes))
