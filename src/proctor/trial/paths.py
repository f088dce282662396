"""Every path of a trial, named once; the names are the ones that agents written for harbor use.

In `<trial>/`:

      config.json       what it was told to do
      result.json       what came of it; written once, at the end
      record.json       the TrialRecord, partial from the first moment
      findings.json     integrity findings, where there are any
      changes.jsonl     what the agent changed of the environment, path by path; of a step, below
                        steps/<name>/
      clean-room.json   what the tests gave in a clean room
      clean-room/       what the verifier left there, where that differs: clean/ and control/
      trial.log         what happened, for people
      exception.txt     the traceback, where there was an exception
      agent/            /logs/agent of the environment, and what the agent wrote on the host
      verifier/         /logs/verifier: test-stdout.txt, reward.txt or reward.json
      artifacts/        collected files, manifest.json
      steps/<name>/     agent/, verifier/ and artifacts/ of each step, for tasks of several
      verify-again.json what further verifications gave, where any were asked for
      verify-again/<n>/ what the verifier left in the nth of them; of a step, below steps/<name>/
      attempts/<n>/     what earlier attempts at this slot left
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class EnvironmentPaths:
    """The places inside an environment that harbor's tasks and agents count on."""

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
    """The paths of one trial on the host."""

    trial_dir: Path
    verifier_place: Path | None = None
    """Where the verifier leaves its files, if not in the trial's verifier/."""

    @cached_property
    def config_path(self) -> Path:
        """What it was told."""
        return self.trial_dir / "config.json"

    @cached_property
    def result_path(self) -> Path:
        """What came of it."""
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
        """What the agent changed of the environment."""
        return self.trial_dir / "changes.jsonl"

    @cached_property
    def clean_room_path(self) -> Path:
        """What the tests gave in a clean room."""
        return self.trial_dir / "clean-room.json"

    @cached_property
    def clean_room_dir(self) -> Path:
        """What the verifier left in the clean room, and in the control."""
        return self.trial_dir / "clean-room"

    @cached_property
    def log_path(self) -> Path:
        """What happened, for people."""
        return self.trial_dir / "trial.log"

    @cached_property
    def exception_message_path(self) -> Path:
        """The traceback."""
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
        """Named by harbor, written by nobody."""
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
    def attempts_dir(self) -> Path:
        """What earlier attempts left."""
        return self.trial_dir / "attempts"

    @cached_property
    def verify_again_path(self) -> Path:
        """What further verifications gave."""
        return self.trial_dir / "verify-again.json"

    def verify_again_dir(self, number: int, step_name: str | None = None) -> Path:
        """What the verifier left in one of the further verifications, counted from 1."""
        top = self.step_dir(step_name) if step_name else self.trial_dir
        return top / "verify-again" / str(number)

    def step_dir(self, step_name: str) -> Path:
        """One step."""
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
