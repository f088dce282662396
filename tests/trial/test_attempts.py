"""Attempts at one task: each has its own names in its files, and sees what changed since."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from proctor.harbor.trial_result import TrialResult
from proctor.record.read import parse_record, render_record
from proctor.trial.spec import TrialSpec
from proctor.trial.unchanged import SeenTrees, take_fingerprint
from tests.trial.rooms import MountedEnvironment, PlainEnvironment
from tests.trial.stage import Stage, load_findings, make_spec, paths_of, write_task

LONG_AGO = 1_000_000_000


def attempts_at(spec: TrialSpec, *names: str) -> list[TrialSpec]:
    """Several trials that differ in their names alone."""
    place = spec.uri.rpartition("/")[0]
    return [
        replace(
            spec,
            config=spec.config.model_copy(update={"trial_name": name}),
            uri=f"{place}/{quote(name)}",
        )
        for name in names
    ]


def run(spec: TrialSpec, kind: type[PlainEnvironment] = PlainEnvironment) -> TrialResult:
    return asyncio.run(Stage(spec, environment_class=kind).run())


def test_every_attempt_has_its_own_names_in_its_files(tmp_path: Path) -> None:
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    for attempt in attempts_at(spec, "it__one", "it__two", "odd name, \u00fc"):
        result = run(attempt, MountedEnvironment)
        name, paths = attempt.config.trial_name, paths_of(attempt)
        assert result.trial_name == name
        assert result.trial_uri == paths.trial_dir.resolve().as_uri()
        assert paths.config_path.read_text() == attempt.config.model_dump_json(indent=4)
        record = paths.record_path.read_bytes()
        assert record == render_record(parse_record(record, "it").record)
        assert json.loads(record)["completeness"] == "complete"
        assert json.loads(paths.result_path.read_text())["trial_name"] == name
        assert sorted(each.name for each in paths.trial_dir.iterdir()) == [
            *("agent", "artifacts", "config.json", "findings.json", "record.json"),
            *("result.json", "trial.log", "verifier"),
        ]


def test_tests_that_change_between_attempts_are_found(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task")
    spec = make_spec(task, tmp_path / "jobs")
    first, second, third = attempts_at(spec, "it__one", "it__two", "it__three")
    run(first)
    run(second)
    (task / "tests" / "test.sh").write_text("#!/bin/bash\necho 0 > /logs/verifier/reward.txt\n")
    run(third)
    assert load_findings(first) == load_findings(second) == []
    (finding,) = load_findings(third)
    assert (finding["code"], finding["detail"]) == ("tests-changed", {"files": ["test.sh"]})


def test_directories_look_alike_until_anything_in_them_changes(tmp_path: Path) -> None:
    tree = tmp_path / "tests"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/a").write_text("a")
    seen = SeenTrees()
    assert not seen.is_unchanged([tree])
    seen.accept(take_fingerprint([tree]), LONG_AGO)
    assert not seen.is_unchanged([tree]), "what has just been written is not relied on"
    later = max(each[5] for each in take_fingerprint([tree]) or []) + 3_000_000_000
    seen.accept(take_fingerprint([tree]), later)
    assert seen.is_unchanged([tree])
    (tree / "deep/a").write_text("b")
    assert not seen.is_unchanged([tree])
    assert not seen.is_unchanged([tmp_path / "gone"])
