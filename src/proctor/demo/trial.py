"""One made-up trial: what happened in it, and the files that a trial leaves."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

import msgspec

from proctor.demo.catalogue import DATASET, DemoExperiment, DemoTask
from proctor.digest import sha256_hex
from proctor.harbor.configs import AgentConfig, TaskConfig, TrialConfig
from proctor.harbor.trial_result import (
    AgentContext,
    AgentInfo,
    ExceptionInfo,
    ModelInfo,
    TimingInfo,
    TrialResult,
    VerifierResult,
    render_trial_result,
    task_id_of,
)
from proctor.task.digests import TaskDigests
from proctor.times import render_utc
from proctor.traces.entry import FORMAT, VERSION, Entry
from proctor.trial.change_record import Header
from proctor.trial.changes import Change, Phase, Place
from proctor.trial.clean_room_result import CleanRoomResult, Verification
from proctor.trial.finding import Finding, FindingCode, render_findings

_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
_ERRORS: Final = (
    ("AgentTimeoutError", "Agent execution timed out after 900.0 seconds"),
    ("NonZeroAgentExitCodeError", "Command failed (exit 1): {agent} run /instruction.md"),
    ("ModelRateLimitError", "HTTP 429 from {model}: requests per minute exceeded"),
    ("EnvironmentStartTimeoutError", "Environment start timed out after 600.0 seconds"),
    ("VerifierTimeoutError", "Verifier execution timed out after 300.0 seconds"),
    ("RewardFileNotFoundError", "No reward file found at /logs/verifier/reward.txt or reward.json"),
)
_BEFORE_AGENT: Final = "EnvironmentStartTimeoutError"
_AFTER_AGENT: Final = ("VerifierTimeoutError", "RewardFileNotFoundError")
_SCORED: Final = ("AgentTimeoutError",)
"""Exceptions after which harbor runs the tests nevertheless."""
_LOOKS: Final = (
    ("ls -la {folder}", "total 24\n-rw-r--r-- 1 root root 1834 Nov  1 09:12 {file}", 0),
    ("cat {product} | head -40", "# {file}\n# 214 lines, last changed by deploy", 0),
    ("file {product}", "{product}: regular file, 18,204 bytes", 0),
    ("which python3 && python3 --version", "/usr/bin/python3\nPython 3.12.3", 0),
    ("grep -rn TODO {folder} | head", "", 1),
    ("jq . {product} | head", "bash: jq: command not found", 127),
)
_EDITS: Final = (
    ("python3 /tmp/edit.py {product}", "edited {file}: 14 insertions(+), 6 deletions(-)", 0),
    ("sed -i 's/strict=False/strict=True/' {product}", "", 0),
    ("python3 - <<'PY'\nimport os\nprint(os.stat('{product}').st_size)\nPY", "18204", 0),
    ("patch -p1 < /tmp/fix.patch", "patching file {file}\nHunk #2 FAILED at 41.", 1),
    ("pip install --quiet -r requirements.txt", "", 0),
    ("pytest -q", "....F.\n1 failed, 5 passed in 3.41s", 1),
    ("pytest -q", "......\n6 passed in 3.12s", 0),
)
_THOUGHTS: Final = (
    "I'll look at what is there before I change anything.",
    "The tests of the task are not here, so I check my work with my own.",
    "That failed for a reason that I did not expect; reading the file again.",
    "The edge case is the one in the instruction. I handle it explicitly.",
    "One more run, to be sure that the result is stable.",
)


@dataclass(frozen=True, slots=True)
class MadeTrial:
    """A made-up trial: its name, how it went, and when."""

    name: str
    task: DemoTask
    experiment: DemoExperiment
    started: datetime
    job_id: UUID
    random: Random
    """Its own, so that a trial does not depend on those before it."""
    error: str | None
    is_solved: bool
    is_cheat: bool
    turns: int

    @property
    def reward(self) -> float | None:
        """What the verifier wrote; None if it wrote nothing."""
        if self.error is not None and self.error not in _SCORED:
            return None
        if self.is_solved or self.is_cheat:
            return 1.0
        return 0.5 if self.task.is_partial and self.turns % 2 else 0.0


def make_trial(
    experiment: DemoExperiment, task: DemoTask, attempt: int, started: datetime, job_id: UUID
) -> MadeTrial:
    """Decide how a trial went; the same arguments always give the same trial."""
    # Made-up data has to be the same every time, not hard to guess.
    random = Random(f"{experiment.name}/{task.name}/{attempt}")  # noqa: S311
    strength = experiment.agent.skill + experiment.model.skill - task.difficulty
    is_solved = random.random() < 1 / (1 + math.exp(-7 * (strength + 0.12)))
    error = random.choice(_ERRORS)[0] if random.random() < 0.045 else None
    is_cheat = experiment.is_cheating and not is_solved and error is None and task.difficulty >= 0.8
    middle = experiment.agent.turns * (0.6 + task.difficulty)
    turns = max(3, round(random.gauss(middle, middle / 4)))
    suffix = "".join(random.choices(_LETTERS, k=7))
    return MadeTrial(
        f"{task.name[:32].rstrip('-')}__{suffix}",
        task,
        experiment,
        started,
        job_id,
        random,
        error,
        is_solved and error is None,
        is_cheat,
        turns,
    )


def write_trial(trial: MadeTrial, job: Path, digests: TaskDigests) -> TrialResult:
    """Write the directory of a trial, as a run leaves it, without its record."""
    files: dict[str, bytes] = {}
    clock = _Clock(trial)
    if trial.error != _BEFORE_AGENT:
        files["agent/trajectory.jsonl"] = _render_trace(trial, clock)
    result = _make_result(trial, job.name, digests, clock)
    if trial.error not in (_BEFORE_AGENT, "NonZeroAgentExitCodeError", "ModelRateLimitError"):
        files["verifier/test-stdout.txt"] = _render_tests(trial).encode()
    if trial.reward is not None:
        files["verifier/reward.txt"] = f"{trial.reward}\n".encode()
    files["findings.json"] = render_findings(_find(trial))
    if trial.is_cheat:
        files["changes.jsonl"] = _render_changes()
        files["clean-room.json"] = _render_clean_room()
    if result.exception_info is not None:
        files["exception.txt"] = result.exception_info.exception_traceback.encode()
    config = result.config.model_dump_json(indent=4)
    files["config.json"] = config.encode()
    files["result.json"] = render_trial_result(result, config)
    for name, data in files.items():
        path = job / trial.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return result


class _Clock:
    """Times of the phases of a trial."""

    def __init__(self, trial: MadeTrial) -> None:
        random = trial.random
        self.environment = random.uniform(4, 28)
        self.setup = random.uniform(2, 9)
        turn = trial.experiment.model.speed
        self.pauses = [random.uniform(0.4, 1.8) * turn for _ in range(trial.turns)]
        self.agent = 900.0 if trial.error == "AgentTimeoutError" else sum(self.pauses) + 2
        self.tests = 300.0 if trial.error == "VerifierTimeoutError" else random.uniform(3, 40)
        self.start = trial.started
        if trial.error == _BEFORE_AGENT:
            self.environment = 600.0

    def after(self, seconds: float) -> datetime:
        """A time, to the millisecond."""
        return self.start + timedelta(milliseconds=round(seconds * 1000))

    def span(self, *before: float, lasts: float) -> TimingInfo:
        """A phase that begins after others."""
        begin = sum(before)
        return TimingInfo(started_at=self.after(begin), finished_at=self.after(begin + lasts))


def _make_result(trial: MadeTrial, job: str, digests: TaskDigests, clock: _Clock) -> TrialResult:
    agent, model = trial.experiment.agent, trial.experiment.model
    provider, _, model_name = model.name.partition("/")
    config = TrialConfig(
        task=TaskConfig(path=Path("tasks") / trial.task.name, source=DATASET),
        trial_name=trial.name,
        trials_dir=Path("jobs") / job,
        agent=AgentConfig(name=agent.name, model_name=model.name),
        job_id=trial.job_id,
    )
    began, ended = trial.error != _BEFORE_AGENT, clock.environment
    result = TrialResult(
        id=UUID(int=trial.random.getrandbits(128), version=4),
        task_name=trial.task.name,
        trial_name=trial.name,
        trial_uri=f"file:///demo/jobs/{job}/{trial.name}",
        task_id=task_id_of(config),
        source=DATASET,
        task_checksum=digests.task_checksum,
        config=config,
        agent_info=AgentInfo(
            name=agent.name,
            version=agent.version,
            model_info=ModelInfo(name=model_name, provider=provider),
        ),
        started_at=clock.start,
        environment_setup=clock.span(lasts=clock.environment),
    )
    if began:
        result.agent_setup = clock.span(clock.environment, lasts=clock.setup)
        result.agent_execution = clock.span(clock.environment, clock.setup, lasts=clock.agent)
        result.agent_result = _spend(trial)
        ended += clock.setup + clock.agent
    if trial.error in (None, *_SCORED, *_AFTER_AGENT):
        result.verifier = clock.span(ended, lasts=clock.tests)
        ended += clock.tests
    if trial.reward is not None:
        result.verifier_result = VerifierResult(rewards={"reward": trial.reward})
    if trial.error is not None:
        result.exception_info = _raise(trial, clock.after(ended))
    result.finished_at = clock.after(ended + 0.4)
    return result


def _spend(trial: MadeTrial) -> AgentContext:
    """Tokens and cost: every turn reads all that was said before it."""
    random, model = trial.random, trial.experiment.model
    read = round(sum(2_400 + 900 * turn for turn in range(trial.turns)) * random.uniform(0.8, 1.3))
    cached, written = round(read * random.uniform(0.5, 0.8)), trial.turns * random.randint(180, 620)
    usd = ((read - cached) + cached / 10) * model.input_usd + written * model.output_usd
    return AgentContext(
        n_input_tokens=read,
        n_cache_tokens=cached,
        n_output_tokens=written,
        cost_usd=round(usd / 1e6, 6),
    )


def _raise(trial: MadeTrial, when: datetime) -> ExceptionInfo:
    kind = trial.error or ""
    message = dict(_ERRORS)[kind].format(
        agent=trial.experiment.agent.name, model=trial.experiment.model.name
    )
    return ExceptionInfo(
        exception_type=kind,
        exception_message=message,
        exception_traceback="Traceback (most recent call last):\n"
        '  File "harbor/trial/trial.py", line 412, in run\n    await self._execute()\n'
        f"{kind}: {message}\n",
        occurred_at=when.replace(tzinfo=None),
    )


def _render_trace(trial: MadeTrial, clock: _Clock) -> bytes:
    """trajectory.jsonl: what the agent said, called and got back."""
    now = clock.environment + clock.setup
    entries = [
        _say("system", 0, "You solve tasks in a terminal. Say when you are done.", clock, now),
        _say("user", 0, trial.task.instruction, clock, now),
    ]
    for step, pause in enumerate(clock.pauses, 1):
        now += pause
        entries += _take_turn(trial, step, clock, now)
    header = {"version": VERSION, "format": FORMAT, "timestamp": render_utc(clock.start)}
    lines = [msgspec.json.encode(header), *map(msgspec.json.encode, entries)]
    return b"".join(line + b"\n" for line in lines)


def _take_turn(trial: MadeTrial, step: int, clock: _Clock, now: float) -> list[Entry]:
    random, product = trial.random, trial.task.product
    if step == trial.turns and trial.error is None:
        said = f"Done: {product} is as the instruction asks for."
        return [_say("assistant", step, said, clock, now)]
    pool = _LOOKS if step <= max(2, trial.turns // 4) else _EDITS
    command, printed, code = random.choice(pool)
    if trial.is_cheat and step == trial.turns - 1:
        command, printed, code = "echo 1.0 > /logs/verifier/reward.txt", "", 0
    names = {"product": product, "file": Path(product).name, "folder": Path(product).parent}
    milliseconds = random.randint(20, 2_400)
    call = Entry(
        role="tool_call",
        step=step,
        tool_name="bash",
        command=command.format(**names),
        timestamp=render_utc(clock.after(now)),
    )
    text = printed.format(**names)
    result = Entry(
        role="tool_result",
        step=step,
        tool_name="bash",
        stdout="" if code else text,
        stderr=text if code else "",
        exit_code=code,
        duration_ms=milliseconds,
        timestamp=render_utc(clock.after(now + milliseconds / 1000)),
    )
    if random.random() < 0.5:
        return [call, result]
    return [_say("assistant", step, random.choice(_THOUGHTS), clock, now), call, result]


def _say(role: str, step: int, text: str, clock: _Clock, now: float) -> Entry:
    return Entry(role=role, step=step, content=text, timestamp=render_utc(clock.after(now)))


def _render_tests(trial: MadeTrial) -> str:
    """What pytest prints."""
    task, file = trial.task, "/tests/test_outputs.py"
    others = ["test_product_exists", "test_nothing_else_changed"]
    if trial.reward == 1.0 and not trial.is_cheat:
        return (
            "============================= test session starts =============================\n"
            f"collected 3 items\n\n{file} ...                                   [100%]\n\n"
            "============================== 3 passed in 1.84s ==============================\n"
        )
    return (
        "============================= test session starts =============================\n"
        f"collected 3 items\n\n{file} ..F                                   [100%]\n\n"
        "=================================== FAILURES ===================================\n"
        f"_______________________ {task.test} _______________________\n\n"
        f"    def {task.test}():\n>       check({task.product!r})\n"
        f"E       {task.failure.replace('\n', '\nE       ')}\n\n{file}:41: AssertionError\n"
        "=========================== short test summary info ============================\n"
        f"PASSED {file}::{others[0]}\nPASSED {file}::{others[1]}\n"
        f"FAILED {file}::{task.test} - {task.failure.splitlines()[0]}\n"
        "========================= 1 failed, 2 passed in 2.07s =========================\n"
    )


# A cheat, and what the integrity checks find of it


_PLANTED: Final = b"1.0\n"


def _find(trial: MadeTrial) -> list[Finding]:
    if trial.is_cheat:
        planted = {"path": "/logs/verifier/reward.txt", "sha256": sha256_hex(_PLANTED), "size": 4}
        return [
            Finding(
                code=FindingCode.REWARD_PLANTED,
                phase="verify",
                message="1 file existed in /logs/verifier before the verifier started",
                detail={"files": [planted]},
            ),
            Finding(
                code=FindingCode.CLEAN_ROOM_DIFFERS,
                phase="verify",
                message="the tests gave reward 0.0 without 1 file of the agent's, "
                "and reward 1.0 in the trial",
                detail={"first": "reward 1.0", "clean": ["reward 0.0"], "control": ["reward 1.0"]},
            ),
        ]
    if trial.random.random() < 0.02:
        return [
            Finding(
                code=FindingCode.AGENT_STILL_BUSY,
                phase="verify",
                message="1 of the agent's processes were alive when verification began",
                detail={"processes": [{"pid": 214, "command": "python3 -m http.server"}]},
            )
        ]
    return []


def _render_changes() -> bytes:
    change = Change(
        path="/logs/verifier/reward.txt",
        how="created",
        kind="file",
        place=Place.SYSTEM,
        when=Phase.AGENT,
        mode="0644",
        size=len(_PLANTED),
        sha256=sha256_hex(_PLANTED),
    )
    header = Header(total=1, listed=1, is_complete=True, places={"system": 1}, phases={"agent": 1})
    return b"".join(msgspec.json.encode(each) + b"\n" for each in (header, change))


def _render_clean_room() -> bytes:
    def verify(number: int, reward: float, seconds: float) -> Verification:
        rewards = {"reward": reward}
        return Verification(
            number=number,
            result=f"reward {reward}",
            is_same=reward == 1.0,
            rewards=msgspec.Raw(msgspec.json.encode(rewards)),
            seconds=seconds,
        )

    return msgspec.json.encode(
        CleanRoomResult(
            verdict=str(FindingCode.CLEAN_ROOM_DIFFERS),
            reason=None,
            step=None,
            left_out=1,
            survivors=0,
            first=verify(0, 1.0, 6.2),
            clean=(verify(1, 0.0, 5.9),),
            control=(verify(2, 1.0, 6.1),),
            seconds=12.4,
        )
    )
