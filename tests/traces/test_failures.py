"""The informative lines of outputs, and the failures of trials in the data of the tests."""

import contextlib
import json
from pathlib import Path

import pytest

from proctor.exchange.traced_files import find_in_files
from proctor.traces.failures import (
    Failure,
    TrialFailures,
    describe_exception,
    find_failures,
    find_message,
)
from proctor.traces.failures import read_failures as read
from proctor.traces.traced_trial import TracedTrial

JOBS = Path(__file__).resolve().parent.parent / "data" / "harbor" / "jobs"

PYTEST = """
=================================== FAILURES ===================================
_________________________________ test_answer __________________________________

    def test_answer():
        answer = 41
>       assert answer == 42, "expected 42"
E       AssertionError: expected 42
E       assert 41 == 42

test_outputs.py:4: AssertionError
_____________________________ TestFile.test_there ______________________________

E   FileNotFoundError: [Errno 2] No such file or directory: '/app/a'

The above exception was the direct cause of the following exception:

E   ValueError: no answer
=========================== short test summary info ============================
FAILED test_outputs.py::test_answer - AssertionError: expected 42
========================= 2 failed, 1 passed in 0.12s ==========================
"""
UNITTEST = """
======================================================================
FAIL: test_a (tests.T.test_a)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/tests/t.py", line 3, in test_a
    self.assertEqual(41, 42)
    ~~~~~~~~~~~~~~~~^^^^^^^^
AssertionError: 41 != 42

----------------------------------------------------------------------
Ran 3 tests in 0.001s

FAILED (failures=1)
"""
BUILDKIT = """
#5 [2/3] RUN apt-get install -y nope
#5 1.902 E: Unable to locate package nope
#5 ERROR: process "/bin/sh -c apt-get install -y nope" did not complete successfully: exit code: 100
------
 > [2/3] RUN apt-get install -y nope:
1.902 E: Unable to locate package nope
------
Dockerfile:2
   2 | >>> RUN apt-get install -y nope
ERROR: failed to solve: process "/bin/sh -c apt-get" did not complete successfully: exit code: 100
"""
TRACEBACK = """starting
Traceback (most recent call last):
  File "/a.py", line 1, in <module>
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/a.py", line 3, in <module>
agent.errors.NoKeyError: no API key: set ACME_KEY
"""
PIP = """Collecting nope==9
ERROR: Could not find a version that satisfies the requirement nope==9
ERROR: No matching distribution found for nope==9
[notice] A new release of pip is available: 23 -> 25
"""
GO = "--- FAIL: TestAnswer (0.00s)\n    answer_test.go:9: got 41, want 42\nFAIL\nFAIL\tx\t0.002s\n"
CARGO = """thread 'it' panicked at src/lib.rs:5:9:
assertion `left == right` failed
  left: 41
 right: 42
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

test result: FAILED. 0 passed; 1 failed; 0 ignored; finished in 0.00s
"""
COLOURED = "\x1b[31mFAIL: expected 42, found 41\x1b[0m\n10%\r100%\n1 of 3 checks failed\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(
            PYTEST,
            [
                ("test_answer", "AssertionError: expected 42"),
                ("TestFile.test_there", "ValueError: no answer"),
            ],
            id="pytest",
        ),
        pytest.param(
            "E   AssertionError\nE   assert 41 == 42\n", [("", "assert 41 == 42")], id="bare class"
        ),
        pytest.param(
            "E   Use -v to get more diff\n", [("", "Use -v to get more diff")], id="only advice"
        ),
        pytest.param(
            "FAILED test_a.py::test_x - assert 1 == 2\n1 failed in 0.1s",
            [("test_a.py::test_x", "assert 1 == 2")],
            id="pytest summary",
        ),
        pytest.param(
            UNITTEST, [("test_a (tests.T.test_a)", "AssertionError: 41 != 42")], id="unittest"
        ),
        pytest.param(BUILDKIT, [("", "E: Unable to locate package nope")], id="buildkit"),
        pytest.param(
            TRACEBACK,
            [("NoKeyError", "agent.errors.NoKeyError: no API key: set ACME_KEY")],
            id="traceback",
        ),
        pytest.param(PIP, [("", "ERROR: No matching distribution found for nope==9")], id="pip"),
        pytest.param(GO, [("", "answer_test.go:9: got 41, want 42")], id="go"),
        pytest.param(CARGO, [("", "assertion `left == right` failed")], id="cargo"),
        pytest.param(COLOURED, [("", "FAIL: expected 42, found 41")], id="coloured"),
        pytest.param("+ test 41 = 42\n+ echo 0\n", [("", "+ test 41 = 42")], id="set -ex"),
        pytest.param(
            "bash: line 1: nope: unbound variable\n",
            [("", "bash: line 1: nope: unbound variable")],
            id="set -u",
        ),
        pytest.param("found: 41\n\n-----\n", [("", "found: 41")], id="last line"),
        pytest.param(
            "make: *** [all] Error 2\n", [("", "make: *** [all] Error 2")], id="only noise"
        ),
        pytest.param("\n  \n====\n", [], id="nothing"),
        pytest.param("", [], id="empty"),
        pytest.param("Traceback (most recent call last):\n  File", [("", "File")], id="cut off"),
    ],
)
def test_the_informative_lines_of_an_output_are_found(
    text: str, found: list[tuple[str, str]]
) -> None:
    """Each failing test, the exception, else the last error, else the last line."""
    assert [(each.title, each.line) for each in find_failures(text)] == found


def test_all_lines_of_an_assertion_are_kept_without_the_marks() -> None:
    """Differences below an assertion explain it."""
    first = find_failures(PYTEST)[0]
    assert first.lines == ("AssertionError: expected 42", "assert 41 == 42")


def test_a_very_long_line_is_cut() -> None:
    """One line of a minified file does not fill a screen."""
    (found,) = find_failures("error: " + "x" * 10_000)
    assert len(found.line) == 400


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            "Build failed: RUN apt-get install -y nope\nReading\nE: Unable to locate package nope",
            "Build failed: RUN apt-get install -y nope: E: Unable to locate package nope",
        ),
        ("Command failed (exit 3): x\n(no output)", "Command failed (exit 3): x"),
        ("late", "late"),
        ("", ""),
    ],
)
def test_a_message_is_quoted_with_what_its_output_says(message: str, line: str) -> None:
    """The beginning of a message rarely says why a command failed; its output does."""
    assert find_message(message) == line


FRAMES = """Traceback (most recent call last):
  File "/p/trial.py", line 3, in run
    await agent.run()
  File "/me/agent.py", line 7, in run
    self.keys["model"]
    ~~~~~~~~~^^^^^^^^^
KeyError: 'model'
"""


@pytest.mark.parametrize(
    ("kind", "message", "lines"),
    [
        ("KeyError", "'model'", ["'model'", '/me/agent.py:7 in run: self.keys["model"]']),
        ("MyError", "", ['/me/agent.py:7 in run: self.keys["model"]']),
        ("MyError", "no key: set ACME_KEY", ["no key: set ACME_KEY"]),
        ("CancelledError", "", ["the trial was cancelled"]),
    ],
)
def test_a_terse_exception_names_the_line_of_code(
    kind: str, message: str, lines: list[str]
) -> None:
    """`KeyError: 'model'` alone does not say where to look."""
    assert list(describe_exception(kind, message, FRAMES).lines) == lines


def read_directory(path: Path, reward: float | None = None) -> TrialFailures:
    *_, trial = find_in_files(str(path))
    return read(trial, reward)


@pytest.mark.parametrize(
    ("trial", "exception", "tests"),
    [
        (
            "06-errors-oracle-k1/build-fail__dVG2ioy",
            ("RuntimeError", "Build failed: RUN echo about-to-fail && exit 7"),
            None,
        ),
        (
            "05-rewards-oracle-k1/missing-reward__3s5NpmR",
            ("RewardFileNotFoundError", "No reward file found at "),
            "no reward",
        ),
        ("01-binary-oracle-k1/oracle-wrong__2j385Vz", None, "to stderr"),
    ],
)
def test_failures_of_a_trial(
    trial: str, exception: tuple[str, str] | None, tests: str | None
) -> None:
    """Exceptions name their file, and the verifier's output is quoted."""
    found = read_directory(JOBS / trial)
    if exception is None:
        assert found.exceptions == ()
    else:
        (error,) = found.exceptions
        assert (error.title, error.file) == (exception[0], "exception.txt")
        assert error.line.startswith(exception[1])
    assert [each.line for each in found.tests] == ([] if tests is None else [tests])


def make_trial(directory: Path, files: dict[str, str]) -> TracedTrial:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return TracedTrial(
        name="t",
        files=tuple(files),
        open_file=lambda name: contextlib.nullcontext(str(directory / name)),
    )


def test_a_ctrf_report_comes_before_the_output(tmp_path: Path) -> None:
    """It names tests in full; of many failing tests, the rest is counted."""
    trace = "E   assert 41 == 42"
    tests = [{"name": f"t.py::{n}", "status": "failed", "trace": trace} for n in range(7)]
    tests.append({"name": "t.py::ok", "status": "passed"})
    trial = make_trial(
        tmp_path,
        {
            "verifier/ctrf.json": json.dumps({"results": {"tests": tests}}),
            "verifier/test-stdout.txt": "FAIL",
        },
    )
    found = read(trial, 0.0)
    assert found.more_tests == 2
    assert found.tests[0] == Failure(
        title="t.py::0",
        line="assert 41 == 42",
        lines=("assert 41 == 42",),
        file="verifier/ctrf.json",
    )
    assert read(trial, 1.0).tests == ()


def test_only_steps_that_did_not_pass_are_explained(tmp_path: Path) -> None:
    """A trial of several steps is explained by the steps that failed, each by name."""
    steps = [
        {"step_name": "one", "verifier_result": {"rewards": {"reward": 1.0}}},
        {"step_name": "two", "verifier_result": {"rewards": {"reward": 0}}},
    ]
    trial = make_trial(
        tmp_path,
        {
            "result.json": json.dumps({"step_results": steps}),
            "steps/one/verifier/test-stdout.txt": "fine",
            "steps/two/verifier/test-stdout.txt": "expected b, found a",
        },
    )
    (only,) = read(trial, 0.5).tests
    assert (only.step, only.line) == ("two", "expected b, found a")


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    """A damaged result or report hides nothing else."""
    trial = make_trial(
        tmp_path,
        {
            "result.json": "[",
            "verifier/ctrf.json": '{"results": 1}',
            "verifier/test-stdout.txt": "expected 42",
        },
    )
    assert [each.line for each in read(trial, None).tests] == ["expected 42"]
