"""All paths of a trial, under the names that agents written for harbor use.

In `<trial>/`:

    config.json       the trial's configuration
    result.json       the trial's result; written once, at the end
    record.json       the TrialRecord, partial from the first moment
    findings.json     integrity findings, if there are any
    changes.jsonl     what the agent changed in the environment, path by path; for a step, below
                      steps/<name>/
    clean-room.json   the result of the tests in a clean room
    clean-room/       what the verifier left there, if that differs: clean/ and control/
    trial.log         log messages, for people
    exception.txt     the traceback, if there was an exception
    agent/            /logs/agent of the environment, and what the agent wrote on the host
    verifier/         /logs/verifier: test-stdout.txt, reward.txt or reward.json
    artifacts/        collected files, manifest.json
    steps/<name>/     agent/, verifier/ and artifacts/ of each step, for tasks of several
    verify-again.json results of repeated verifications, if requested
    verify-again/<n>/ what the verifier left in the nth of them; for a step, below steps/<name>/
    attempts/<n>/     what earlier attempts at this trial left
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class EnvironmentPaths:
    """Paths inside an environment that harbor's tasks and agents rely on."""

    logs_dir: PurePosixPath
    agent_dir: PurePosixPath
    verifier_dir: PurePosixPath
    artifacts_dir: PurePosixPath
    tests_dir: PurePosixPath
    solution_dir: PurePosixPath
    default_skills_dir: PurePosixPath


INSIDE = EnvironmentPaths(
    logs_dir=PurePosixPath("/logs"),
    agent_dir=PurePosixPath("/logs/agent"),
    verifier_dir=PurePosixPath("/logs/verifier"),
    artifacts_dir=PurePosixPath("/logs/artifacts"),
    tests_dir=PurePosixPath("/tests"),
    solution_dir=PurePosixPath("/solution"),
    default_skills_dir=PurePosixPath("/harbor/skills"),
)


@dataclass(frozen=True)
class TrialPaths:
    """Paths of one trial on the host.

    Names of harbor's own class are here although nothing here reads them: harbor's agents and
    verifiers do.
    """

    trial_dir: Path
    verifier_place: Path | None = None
    """Directory of the verifier's files, if not the trial's verifier/."""

    @cached_property
    def config_path(self) -> Path:
        """The trial's configuration."""
        return self.trial_dir / "config.json"

    @cached_property
    def result_path(self) -> Path:
        """The trial's result."""
        return self.trial_dir / "result.json"

    @cached_property
    def record_path(self) -> Path:
        """The TrialRecord."""
        return self.trial_dir / "record.json"

    @cached_property
    def findings_path(self) -> Path:
        """Integrity findings."""
        return self.trial_dir / "findings.json"

    @cached_property
    def changes_path(self) -> Path:
        """The agent's changes to the environment."""
        return self.trial_dir / "changes.jsonl"

    @cached_property
    def clean_room_path(self) -> Path:
        """The result of the tests in a clean room."""
        return self.trial_dir / "clean-room.json"

    @cached_property
    def clean_room_dir(self) -> Path:
        """What the verifier left in the clean room, and in the control."""
        return self.trial_dir / "clean-room"

    @cached_property
    def log_path(self) -> Path:
        """Log messages, for people."""
        return self.trial_dir / "trial.log"

    @cached_property
    def exception_message_path(self) -> Path:
        """The traceback of the trial's exception."""
        return self.trial_dir / "exception.txt"

    @cached_property
    def agent_dir(self) -> Path:
        """What the agent left."""
        return self.trial_dir / "agent"

    @cached_property
    def verifier_dir(self) -> Path:
        """What the verifier left."""
        return self.verifier_place or self.trial_dir / "verifier"

    @cached_property
    def artifacts_dir(self) -> Path:
        """Collected files."""
        return self.trial_dir / "artifacts"

    @cached_property
    def artifacts_manifest_path(self) -> Path:
        """What was collected, and what could not be."""
        return self.artifacts_dir / "manifest.json"

    @cached_property
    def test_stdout_path(self) -> Path:
        """What the tests printed."""
        return self.verifier_dir / "test-stdout.txt"

    @cached_property
    def test_stderr_path(self) -> Path:
        """Part of harbor's interface; never written."""
        return self.verifier_dir / "test-stderr.txt"

    @cached_property
    def reward_text_path(self) -> Path:
        """reward.txt."""
        return self.verifier_dir / "reward.txt"

    @cached_property
    def reward_json_path(self) -> Path:
        """reward.json."""
        return self.verifier_dir / "reward.json"

    @cached_property
    def steps_dir(self) -> Path:
        """The steps of a task of several."""
        return self.trial_dir / "steps"

    @cached_property
    def verify_again_path(self) -> Path:
        """Results of repeated verifications."""
        return self.trial_dir / "verify-again.json"

    def verify_again_dir(self, number: int, step_name: str | None = None) -> Path:
        """What the verifier left in a repeated verification, counted from 1."""
        top = self.step_dir(step_name) if step_name else self.trial_dir
        return top / "verify-again" / str(number)

    def step_dir(self, step_name: str) -> Path:
        """Directory of one step."""
        return self.steps_dir / step_name

    def step_agent_dir(self, step_name: str) -> Path:
        """What the agent left in a step."""
        return self.step_dir(step_name) / "agent"

    def step_verifier_dir(self, step_name: str) -> Path:
        """What the verifier left in a step."""
        return self.step_dir(step_name) / "verifier"

    def step_artifacts_dir(self, step_name: str) -> Path:
        """What was collected in a step."""
        return self.step_dir(step_name) / "artifacts"

    def step_artifacts_manifest_path(self, step_name: str) -> Path:
        """The manifest of a step."""
        return self.step_artifacts_dir(step_name) / "manifest.json"
