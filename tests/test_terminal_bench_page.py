"""scripts/terminal-bench: the images that Dockerfiles name, and the table of the page."""

import json
import os
import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "terminal-bench"))
HEAD = "# Title\n\n## All tasks\n"


def write_result(job: Path, task: str, begun: str, **fields: object) -> None:
    trial = job / f"{task}__abc"
    trial.mkdir(parents=True)
    document = {"task_name": f"org/{task}", "started_at": begun, **fields}
    (trial / "result.json").write_text(json.dumps(document))


def rewarded(reward: float) -> dict[str, object]:
    return {"verifier_result": {"rewards": {"reward": reward}}}


def write_page(page: Path, tasks: list[str], jobs: list[Path]) -> list[str]:
    SCRIPT["write_page"](page, tasks, jobs)
    return page.read_text().splitlines()


def rows(lines: list[str]) -> dict[str, str]:
    """What is known of each task."""
    listed = (line.removeprefix("- `").partition("` ") for line in lines if line.startswith("- `"))
    return {task: known for task, _, known in listed}


def test_a_task_has_how_far_it_came_its_latest_reward_and_why_it_has_none(tmp_path: Path) -> None:
    page, first, second = tmp_path / "page.md", tmp_path / "first", tmp_path / "second"
    page.write_text(HEAD)
    write_result(first, "good", "2026-01-01T00:00:00Z", **rewarded(0.0))
    write_result(second, "good", "2026-01-02T00:00:00Z", **rewarded(1.0))
    error = {"exception_type": "RuntimeError", "exception_message": "Build failed: a | b\nmore"}
    started = {"started_at": "2026-01-01T00:00:00Z"}
    write_result(
        first, "bad", "2026-01-01T00:00:00Z", environment_setup=started, exception_info=error
    )
    lines = write_page(page, ["bad", "good", "other"], [second, first])
    assert rows(lines) == {
        "bad": f"{by_user('build', 'none')}: RuntimeError: Build failed: a | b",
        "good": f"{by_user('scored', '1')}: ",
        "other": "(not run, -): ",
    }
    assert any("2 tasks run, 1 scored 1, 0 scored 0, 1 have no reward" in line for line in lines)


def by_user(phase: str, reward: str) -> str:
    """How far a task came that one user ran, whoever runs this suite."""
    if os.geteuid() == 0:
        return f"({phase} / not run, {reward} / -)"
    return f"(not run / {phase}, - / {reward})"


def test_an_explanation_is_kept_when_the_table_is_written_again(tmp_path: Path) -> None:
    page, job = tmp_path / "page.md", tmp_path / "job"
    page.write_text(HEAD)
    write_result(job, "bad", "2026-01-01T00:00:00Z", **rewarded(0.0))
    (line,) = [one for one in write_page(page, ["bad"], [job]) if one.startswith("- `bad`")]
    page.write_text(page.read_text().replace(line, f"{line}needs a host"))
    assert rows(write_page(page, ["bad"], [job]))["bad"].endswith(": needs a host")


def test_the_images_that_dockerfiles_start_and_copy_from_are_found(tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    text = (
        "FROM ubuntu:24.04 AS build\nRUN true\nCOPY --from=ghcr.io/astral-sh/uv:0.8.14 /uv /bin/\n"
    )
    (tmp_path / "environment" / "Dockerfile").write_text(text)
    assert SCRIPT["images_of"]([tmp_path]) == {"ubuntu:24.04", "ghcr.io/astral-sh/uv:0.8.14"}
