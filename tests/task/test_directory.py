"""One task directory: what harbor takes, and every reason why it does not."""

import os
from pathlib import Path

import pytest

from proctor.diagnostic import Diagnostic
from proctor.errors import TaskError
from proctor.task.directory import find_faults, find_name, load_task, strip_canary
from proctor.task.parse import ENDS_JOB
from tests.task.trees import TASKS, make_steps, make_task, write
from tests.unprivileged import unprivileged


def codes(path: Path, *, verifying: bool = True) -> list[str]:
    return [fault.code for fault in find_faults(path, verifying=verifying)]


def test_a_real_task_is_loaded() -> None:
    task = load_task(TASKS / "binary" / "pass-simple")
    assert (task.name, task.short_name) == ("pass-simple", "pass-simple")
    assert task.config.agent.timeout_sec == 30.0
    assert task.instruction.startswith("Write")
    assert task.environment_directory.is_dir()
    assert task.find_test_script() == task.directory / "tests" / "test.sh"
    assert task.find_solution_script() == task.directory / "solution" / "solve.sh"
    assert task.steps == ()


def test_a_real_task_of_several_steps_is_loaded() -> None:
    task = load_task(TASKS / "multistep" / "ms-mean")
    assert task.instruction == ""
    assert [step.name for step in task.steps]
    for step in task.steps:
        assert step.instruction
        assert step.directory == task.directory / "steps" / step.name
        assert step.workdir.parent == step.directory
        assert task.find_test_script(step)


def test_the_name_is_the_published_one_or_that_of_the_directory(tmp_path: Path) -> None:
    make_task(tmp_path / "here", "[task]\nname = 'acme/hello'\n")
    task = load_task(tmp_path / "here")
    assert (task.name, task.short_name) == ("acme/hello", "hello")
    (tmp_path / "here" / "task.toml").write_text("")
    (tmp_path / "link").symlink_to("here")
    assert load_task(tmp_path / "link").name == "here"


def test_a_task_that_harbor_does_not_take_has_a_name_too(tmp_path: Path) -> None:
    write(tmp_path / "here", {"task.toml": "[task]\nname = 'acme/hello'\n"})
    assert find_name(tmp_path / "here") == "acme/hello"
    (tmp_path / "here" / "task.toml").write_text("[")
    assert find_name(tmp_path / "here") == "here"


def test_notes_on_the_config_are_kept(tmp_path: Path) -> None:
    task = load_task(make_task(tmp_path, "frob = 1"))
    assert [note.code for note in task.notes] == ["unknown-key"]


def test_a_step_without_a_test_of_its_own_takes_the_shared_one(tmp_path: Path) -> None:
    make_steps(tmp_path, "one", "two")
    (tmp_path / "steps/two/tests/test.sh").unlink()
    assert codes(tmp_path) == ["missing-test"]
    write(tmp_path, {"tests/test.sh": ""})
    task = load_task(tmp_path)
    scripts = [task.find_test_script(step) for step in task.steps]
    assert scripts == [tmp_path / "steps/one/tests/test.sh", tmp_path / "tests/test.sh"]


def test_a_task_for_windows_needs_a_batch_file(tmp_path: Path) -> None:
    make_task(tmp_path, "[environment]\nos = 'windows'\n")
    assert codes(tmp_path) == ["missing-test"]
    write(tmp_path, {"tests/test.bat": ""})
    assert codes(tmp_path) == []


@pytest.mark.parametrize(
    ("removed", "fault"),
    [
        ("task.toml", Diagnostic("missing-config", "no task.toml")),
        ("environment/Dockerfile", Diagnostic("missing-environment", "no environment/")),
        ("instruction.md", Diagnostic("missing-instruction", "no instruction.md")),
        (
            "tests/test.sh",
            Diagnostic(
                "missing-test",
                "no tests/test.sh; a task for linux that is verified in the agent's environment "
                "needs it",
            ),
        ),
    ],
)
def test_each_missing_piece_is_named(tmp_path: Path, removed: str, fault: Diagnostic) -> None:
    make_task(tmp_path)
    (tmp_path / removed).unlink()
    if removed.startswith("environment"):
        (tmp_path / "environment").rmdir()
    assert find_faults(tmp_path) == [fault]
    with pytest.raises(TaskError, match=f"not a valid task: {fault.message}"):
        load_task(tmp_path)


def test_all_faults_of_a_task_are_named_at_once(tmp_path: Path) -> None:
    write(tmp_path, {"task.toml": "[[steps]]\nname = 'one'\n[[steps]]\nname = 'two'\n"})
    (tmp_path / "steps" / "two").mkdir(parents=True)
    assert [str(fault) for fault in find_faults(tmp_path)] == [
        "no environment/",
        "no steps/one/, but [[steps]] lists it",
        "no steps/one/tests/test.sh and no tests/test.sh; a task for linux that is verified in "
        "the agent's environment needs it",
        "no steps/two/instruction.md",
        "no steps/two/tests/test.sh and no tests/test.sh; a task for linux that is verified in "
        "the agent's environment needs it",
    ]


def test_a_separate_verifier_needs_no_test_script(tmp_path: Path) -> None:
    make_task(tmp_path, '[verifier]\nenvironment_mode = "separate"\n')
    (tmp_path / "tests/test.sh").unlink()
    assert codes(tmp_path) == []


def test_without_verification_no_test_script_is_needed(tmp_path: Path) -> None:
    make_task(tmp_path)
    (tmp_path / "tests/test.sh").unlink()
    assert codes(tmp_path) == ["missing-test"]
    assert codes(tmp_path, verifying=False) == []


@pytest.mark.parametrize("path", ["file", "nothing"])
def test_what_is_no_directory_has_no_task(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    assert codes(tmp_path / path) == ["missing-config", "missing-environment"]


def test_a_step_whose_name_no_file_can_have_is_a_fault(tmp_path: Path) -> None:
    make_steps(tmp_path, "x")
    (tmp_path / "task.toml").write_text(f"[[steps]]\nname = '{'x' * 300}'\n")
    (fault,) = find_faults(tmp_path)
    assert fault.code in ENDS_JOB
    assert fault.message.endswith("File name too long; harbor aborts the job on it")


def test_a_directory_that_may_not_be_entered_is_a_fault(open_path: Path) -> None:
    make_task(open_path / "task").chmod(0)
    with unprivileged():
        (fault,) = find_faults(open_path / "task")
    expected = "task.toml cannot be read: Permission denied; harbor aborts the job on it"
    assert (fault.code, fault.message) == ("unreadable", expected)


def test_a_config_that_may_not_be_read_is_a_fault(open_path: Path) -> None:
    (make_task(open_path / "task") / "task.toml").chmod(0)
    with unprivileged():
        (fault,) = find_faults(open_path / "task")
    assert fault.message == "task.toml cannot be read: it gives 'Permission denied'"


def test_a_pipe_in_the_place_of_an_instruction_is_a_sentence(tmp_path: Path) -> None:
    make_task(tmp_path)
    (tmp_path / "instruction.md").unlink()
    os.mkfifo(tmp_path / "instruction.md")
    with pytest.raises(TaskError, match=r"instruction\.md: cannot be read: is not a regular file"):
        load_task(tmp_path)


def test_an_instruction_that_is_not_utf8_is_a_sentence(tmp_path: Path) -> None:
    (make_task(tmp_path) / "instruction.md").write_bytes(b"caf\xe9")
    with pytest.raises(TaskError, match=r"instruction\.md: not UTF-8: .* at offset 3"):
        load_task(tmp_path)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Do it.\n", "Do it.\n"),
        ("# canary GUID 1\n<!-- Canary -->\n\n \nDo it.\n", "Do it.\n"),
        ("  # a CANARY  \nDo it.\n# canary\n", "Do it.\n# canary\n"),
        ("# Title\n# canary\n", "# Title\n# canary\n"),
        ("<!--canary-->", ""),
        ("<!-- canary", "<!-- canary"),
        ("<!-->canary", "<!-->canary"),
        ("\n\nDo it.", "Do it."),
    ],
)
def test_canary_lines_at_the_top_are_stripped(text: str, left: str) -> None:
    assert strip_canary(text) == left


def test_a_line_of_very_many_canaries_takes_no_time() -> None:
    text = "<!-- " + "canary" * 10**6
    assert strip_canary(text) == text
