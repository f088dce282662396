"""Tests rest on the image's own tools: what cannot be given back, or changes under them, voids."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.harbor.trial_result import TrialResult
from proctor.trial.environment import ChangedFile, Process
from tests.trial.rooms import WatchedEnvironment
from tests.trial.stage import Stage, do_nothing, load_findings, make_spec, write_task

GREP = ChangedFile("/usr/bin/grep", "changed", "0" * 64)
PYTHON = ChangedFile("/usr/local/bin/python3", "built", "0" * 64)


class KeepingEnvironment(WatchedEnvironment):
    """Has tools that were changed, before the tests and after."""

    looks: Sequence[Sequence[ChangedFile]] = ()
    marks: Sequence[Mapping[str, str]] = ({}, {})
    is_busy = False
    can_give_back = True

    async def list_processes(self, *, with_services: bool = False) -> Sequence[Process]:
        return [Process(7, "left")] if self.is_busy else []

    async def find_changed_tools(self) -> Sequence[ChangedFile]:
        first, *rest = self.looks or [()]
        self.looks = rest
        return first

    async def restore_tools(self, changed: Sequence[ChangedFile]) -> None:
        if not self.can_give_back:
            raise SandboxError("/bin is another directory")

    async def mark_tools(self) -> Mapping[str, str]:
        first, *rest = self.marks
        self.marks = rest
        return first


def sit(
    place: Path, facts: Mapping[str, object], *, compatible: bool = False
) -> tuple[TrialResult, list[dict[str, object]]]:
    """A trial whose tests give 1, in such an environment, and what was found."""
    kind = type("Kind", (KeepingEnvironment,), dict(facts))
    stage = Stage(
        make_spec(write_task(place / "task"), place / "jobs", compatible=compatible),
        do_nothing,
        kind,
    )
    result = asyncio.run(stage.run())
    return result, load_findings(stage.spec)


def error_of(result: TrialResult) -> tuple[str, str] | None:
    info = result.exception_info
    return None if info is None else (info.exception_type, info.exception_message)


def test_what_was_given_back_is_a_finding_and_the_reward_counts(tmp_path: Path) -> None:
    result, found = sit(tmp_path, {"looks": [[GREP, PYTHON]]})
    assert error_of(result) is None
    assert result.verifier_result is not None
    assert [finding["code"] for finding in found] == ["system-changed"]
    assert found[0]["message"] == (
        "2 tools that tests rest on were not the image's own when verification began"
    )


def test_what_cannot_be_given_back_keeps_the_tests_from_running(tmp_path: Path) -> None:
    result, _ = sit(tmp_path, {"looks": [[GREP]], "can_give_back": False})
    assert result.verifier_result is None
    assert error_of(result) == (
        "ToolsChangedError",
        "the tests were not run: /usr/bin/grep is not the image's own, and the image's could not "
        "be put back: /bin is another directory",
    )


@pytest.mark.parametrize(
    "facts",
    [{"looks": [[], [GREP]]}, {"marks": [{GREP.path: "1"}, {GREP.path: "2"}]}],
    ids=["changed", "changed and changed back"],
)
def test_tools_that_change_under_the_tests_void_the_reward(
    tmp_path: Path, facts: dict[str, object]
) -> None:
    result, found = sit(tmp_path, {**facts, "is_busy": True})
    assert result.verifier_result is None
    assert error_of(result) == (
        "ToolsChangedError",
        "/usr/bin/grep was changed while the tests ran and processes of the agent were alive: the "
        "reward does not count",
    )
    assert found[-1]["code"] == "system-changed"


@pytest.mark.parametrize(
    "facts",
    [
        {"looks": [[], [GREP]]},
        {"looks": [[PYTHON], [PYTHON]], "is_busy": True},
        {"marks": [{GREP.path: "1"}, {GREP.path: "1"}], "is_busy": True},
    ],
    ids=["tests that install things", "an interpreter that was built", "as it was"],
)
def test_else_it_counts(tmp_path: Path, facts: dict[str, object]) -> None:
    result, _ = sit(tmp_path, facts)
    assert error_of(result) is None
    assert result.verifier_result is not None


def test_with_harbors_compatibility_nobody_looks(tmp_path: Path) -> None:
    result, found = sit(tmp_path, {"looks": [[GREP]], "can_give_back": False}, compatible=True)
    assert error_of(result) is None
    assert found == []
