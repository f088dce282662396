"""Log files of Inspect: both forms, and what cannot be read."""

import contextlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import InputError, InspectError
from proctor.exchange.inspect.reading import LogReader
from proctor.exchange.inspect.trial import InspectOptions, find_samples
from tests.examples import examples
from tests.exchange.inspect.logs import (
    EVAL,
    HEADER,
    find,
    make_sample,
    record_of,
    submit,
    write_archive,
    write_document,
    write_members,
)


def test_both_forms_give_the_same_trials(tmp_path: Path) -> None:
    samples = [make_sample("a"), make_sample("a", 2), make_sample(7, scores=None)]
    packed = submit(write_archive(tmp_path / "a.eval", *samples))
    plain = submit(write_document(tmp_path / "a.json", *samples))
    assert [trial.record for trial in packed] == [trial.record for trial in plain]
    for name in ("inspect_sample.json", "trajectory.jsonl"):
        assert [trial.attached[name] for trial in packed] == [
            trial.attached[name] for trial in plain
        ]
    assert [record_of(trial)["trial_id"] for trial in packed] == [
        "a.epoch-1.Ev1",
        "a.epoch-2.Ev1",
        "7.epoch-1.Ev1",
    ]


def test_a_directory_is_searched_for_logs_and_other_files_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "deep" / ".hidden").mkdir(parents=True)
    write_archive(tmp_path / "deep" / "a.eval", make_sample("a"))
    write_archive(tmp_path / "deep" / ".hidden" / "b.eval", make_sample("b"))
    write_document(tmp_path / "c.json", make_sample("c"))
    (tmp_path / "logs.json").write_text('{"listing": []}')
    (tmp_path / "link.eval").symlink_to(tmp_path / "deep" / "a.eval")
    found = find(tmp_path)
    assert [offer.where.rpartition(": ")[0] for offer in found.offers] == [
        str(tmp_path / "c.json"),
        str(tmp_path / "deep" / "a.eval"),
    ]
    assert found.notes == [f"{tmp_path}: 1 other JSON file in it, not logs"]


def test_a_log_without_samples_says_its_status(tmp_path: Path) -> None:
    failed = {"message": "no key", "traceback": "", "traceback_ansi": ""}
    path = write_archive(tmp_path / "a.eval", header={**HEADER, "status": "error", "error": failed})
    with pytest.raises(InspectError, match='no samples in it; its status is error: "no key"'):
        find(path)
    write_archive(tmp_path / "b.eval", make_sample())
    found = find(tmp_path)
    assert (len(found.offers), "no samples" in found.notes[0]) == (1, True)


@pytest.mark.parametrize("name", ["a.eval", "a.json", "a.txt"])
@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04 and then nothing", b"[1, 2]", b'{"version": 2}', b"\xff\xfe{"]
)
def test_what_is_no_log_gets_a_sentence(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InspectError, match=f"{name}: Inspect cannot read it: "):
        find(path)


def test_a_header_without_its_ids_is_refused(tmp_path: Path) -> None:
    header = {**HEADER, "eval": {**EVAL, "task": 3}}
    with pytest.raises(InspectError, match=r"Inspect cannot read it: eval\.task: Input should be"):
        find(write_archive(tmp_path / "a.eval", make_sample(), header=header))


def test_what_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path / "none.eval", "no such file or directory"),
        (tmp_path / "pipe", "not a plain file"),
        (tmp_path, "no log in it"),
    ):
        with pytest.raises(InspectError, match=said):
            find(path)


def test_names_of_samples_lead_nowhere(tmp_path: Path) -> None:
    summary = b'[{"id": "../../../x", "epoch": 1, "input": "", "target": ""}]'
    path = write_archive(tmp_path / "b.eval", make_sample("../../../x"))
    (trial,) = submit(path)
    assert record_of(trial)["trial_id"].startswith("x.epoch-1.Ev1-")
    assert [path.name for path in tmp_path.iterdir()] == ["b.eval"]
    gone = write_members(tmp_path / "a.eval", {"header.json": b"{}", "summaries.json": summary})
    with pytest.raises(InspectError, match="Inspect cannot read it: eval: Field required"):
        find(gone)


def test_one_broken_sample_does_not_refuse_the_others(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", b"{", make_sample())
    first, second = find(path).offers
    with pytest.raises(InspectError, match="sample 0, epoch 1: Inspect cannot read it"):
        first.submit()
    assert second.submit().where == f"{path}: sample 1, epoch 1"


def test_one_broken_log_does_not_refuse_the_others(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.eval", make_sample())
    (tmp_path / "b.eval").write_bytes(b"PK")
    good, broken = find(tmp_path).offers
    assert good.submit().source is not None
    with pytest.raises(InspectError, match="Inspect cannot read it"):
        broken.submit()


def test_without_inspect_ai_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InspectError, match=r"250 MB.* pip install 'proctor\[inspect\]'"):
        find(write_archive(tmp_path / "a.eval", make_sample()))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("input(); print('{}', end='')", r"more than 268,435,456 bytes"),
        ("raise SystemExit(3)", r"inspect_ai ended \(3\)"),
        ("input(); print('no')", "Expecting value"),
        ('input(); print(\'{"log": {}, "samples": []}\')', "missing required field `eval`"),
    ],
)
def test_a_process_that_does_not_answer_ends_no_more_than_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.undo()
    worker = tmp_path / "worker"
    worker.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "$PROGRAM"\n')
    worker.chmod(0o755)
    monkeypatch.setenv("PROGRAM", program)
    monkeypatch.setattr(sys, "executable", str(worker))
    path = write_archive(tmp_path / "a.eval", make_sample())
    with LogReader() as reader, pytest.raises(InspectError, match=said):
        find_samples([path], InspectOptions(), reader)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "../../x", "attachment://x", "\x1b[2J", 10**400, "2026-01-01"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = sorted({*make_sample(), "events", "model_usage", "error", "limit", "attachments"})
PARTS = st.dictionaries(
    st.sampled_from(["content", "tool_calls", "id", "function", "error", "tool_call_id"]),
    JUNK,
    max_size=2,
)


@settings(
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=2),
    st.lists(PARTS, max_size=2),
    st.dictionaries(st.sampled_from(sorted(EVAL)), JUNK, max_size=2),
)
def test_any_values_are_refused_with_a_sentence_or_can_be_sealed(
    tmp_path: Path, changes: dict[str, Any], messages: list[Any], given_: dict[str, Any]
) -> None:
    said = [{"role": "user", "content": "Go."} | message for message in messages]
    sample = make_sample(messages=said) | changes
    header = {**HEADER, "eval": {**EVAL, **given_}}
    with contextlib.suppress(InputError):
        submit(write_archive(tmp_path / "a.eval", sample, header=header))
