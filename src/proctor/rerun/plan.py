"""The job that runs a recorded trial again, or the reason why it cannot be run.

Untrusted settings that affect this machine are not used: custom classes, mounts, compose files, and
host variables. Those that would change the outcome make the trial not replayable; the others are
dropped, and a note says so.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.agents.revision import tree_digest
from proctor.audit.shown import REWARD_ERRORS
from proctor.environments.kinds import environment_name_for, environment_names
from proctor.errors import AgentError, NotReplayableError, TraceError
from proctor.harbor.configs import (
    SANDBOX,
    AgentConfig,
    EnvironmentConfig,
    JobConfig,
    TaskConfig,
)
from proctor.harbor.env import is_redacted, is_template
from proctor.record.ids import make_id
from proctor.rerun.recorded import RecordedTrial, TraceFile
from proctor.rerun.verdict import Way
from proctor.sentence import reason_of
from proctor.traces.commands import PERSISTENT_SHELLS, ShellCommand, Unreplayable, read_calls
from proctor.traces.convert import load_entries

# Agents whose actions follow from the task alone, so they are run instead of replayed.
_RUN_AGAIN = ("oracle", "nop")
# Agents that are run again with recorded answers: what they do here stays inside environments.
_ASKS_AGAIN = ("command", "chat")
# kwargs of these that name files of the host.
_TREE = "tree"
_FILE = "system_prompt_file"
# Environment settings that say what it is built from; any other could expose this machine.
_TAKEN_OVER = frozenset({"base"})
# The environment that runs nothing and rewards everything.
_NOWHERE = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunPlan:
    """How to run a trial again."""

    agent: AgentConfig
    environment: EnvironmentConfig
    way: Way
    image: str | None = None
    """The recorded image, with a digest, if this environment can run on it; None: any."""
    commands: list[ShellCommand] = field(default_factory=list)
    """The commands to run again, with their recorded results."""
    notes: list[str] = field(default_factory=list)
    """Differences from the recorded trial, as sentences."""


def plan_rerun(trial: RecordedTrial, wanted: str | None, base: str | None = None) -> RerunPlan:
    """Plan the rerun of a trial.

    `wanted` names another environment than the recorded one, `base` another root file system.

    The agent is `replay`, without a trajectory yet: the caller adds its path.

    Raises:
        NotReplayableError: it cannot be run again; the message says why.
    """
    _check_verified(trial)
    notes: list[str] = []
    if compat := trial.verifier_compat:
        notes.append(f"with --verifier-compat {compat}, a reward written by the agent counts")
    environment = _find_environment(trial, wanted, base, notes)
    recorded = trial.config.agent
    if recorded.import_path is None and recorded.name in _RUN_AGAIN:
        _check_own_replay(recorded.name, trial.result.agent_info.name)
        agent = _make_agent(recorded, recorded.name, {})
        image = _find_image(trial, environment, base)
        return RerunPlan(
            agent=agent, environment=environment, way=Way.AGENT, image=image, notes=notes
        )
    if trial.result.step_results is not None:
        raise NotReplayableError("its task has several steps, and its trace does not separate them")
    if trial.trace is None:
        raise NotReplayableError(
            "its agent wrote no trace with steps, and recorded output cannot be run again; to make "
            "such trials replayable, run them with a model through the gateway (-m MODEL), or let "
            "the agent write a trace to $PROCTOR_TRAJECTORY"
        )
    commands = load_commands(trial.trace)
    env = _keep_plain(recorded.env, "agent", notes)
    if recorded.skills or recorded.mcp_servers:
        notes.append("the agent's skills and MCP servers are not available")
    if lasting := sorted({each.tool for each in commands} & PERSISTENT_SHELLS):
        notes.append(f"the shell of {', '.join(lasting)} was persistent; here it is not")
    agent = _make_agent(recorded, "replay" if commands else "nop", env)
    return RerunPlan(
        agent=agent,
        environment=environment,
        way=Way.COMMANDS,
        image=_find_image(trial, environment, base),
        commands=commands,
        notes=notes,
    )


def plan_with_answers(
    trial: RecordedTrial, wanted: str | None, tree: Path | None, base: str | None = None
) -> RerunPlan:
    """Plan to run the agent of a trial again, with the recorded answers of its model.

    `tree` is the directory with the agent's files; None: the recorded one.

    Raises:
        NotReplayableError: the agent cannot be run again; the message says why.
    """
    _check_verified(trial)
    notes: list[str] = []
    recorded = trial.config.agent
    if recorded.import_path is not None or recorded.name not in _ASKS_AGAIN:
        raise NotReplayableError(f"{recorded.import_path or recorded.name} is not run again")
    if recorded.skills or recorded.mcp_servers:
        raise NotReplayableError("its skills and MCP servers are not available")
    kwargs = dict(recorded.kwargs)
    if kwargs.get(_FILE) is not None:
        raise NotReplayableError("its system prompt was a file of its machine")
    if kwargs.get(_TREE) is not None:
        kwargs[_TREE] = str(_find_tree(trial, str(kwargs[_TREE]), tree))
    if compat := trial.verifier_compat:
        notes.append(f"with --verifier-compat {compat}, a reward written by the agent counts")
    environment = _find_environment(trial, wanted, base, notes)
    env = _keep_plain(recorded.env, "agent", notes)
    agent = _make_agent(recorded, recorded.name, env).model_copy(
        update={"kwargs": kwargs, "model_name": recorded.model_name}
    )
    image = _find_image(trial, environment, base)
    return RerunPlan(
        agent=agent, environment=environment, way=Way.ANSWERS, image=image, notes=notes
    )


def _find_tree(trial: RecordedTrial, recorded: str, given: Path | None) -> Path:
    """Find the agent's files, and check that they are the recorded ones."""
    tree = given or Path(trial.cwd or "", recorded).absolute()
    # A stranger names it: only what is here is read, unless the user names it too.
    if given is None and not tree.resolve().is_relative_to(Path.cwd().resolve()):
        raise NotReplayableError(
            f"its files were in {recorded}; pass their directory with --agent-tree"
        )
    if trial.revision is None or "sha256:" not in trial.revision:
        raise NotReplayableError("the digest of its files is not recorded")
    try:
        found = tree_digest(tree)
    except AgentError as error:
        raise NotReplayableError(str(error)) from error
    if found not in trial.revision.split():
        raise NotReplayableError(f"its files in {tree} have changed")
    return tree


def find_usable() -> list[str]:
    """The environments in which trials can be run again."""
    return [name for name in environment_names() if name != _NOWHERE]


def make_job(
    trial: RecordedTrial, plan: RerunPlan, task: Path, jobs_dir: Path, trace: Path | None
) -> JobConfig:
    """Make the job of one trial that runs it again."""
    config, agent = trial.config, plan.agent
    if trace is not None and agent.name == "replay":
        agent = agent.model_copy(update={"kwargs": {"trajectory": str(trace)}})
    return JobConfig(
        job_name=make_id(trial.name),
        jobs_dir=jobs_dir,
        n_concurrent_trials=1,
        timeout_multiplier=config.timeout_multiplier,
        agent_timeout_multiplier=config.agent_timeout_multiplier,
        verifier_timeout_multiplier=config.verifier_timeout_multiplier,
        agent_setup_timeout_multiplier=config.agent_setup_timeout_multiplier,
        environment_build_timeout_multiplier=config.environment_build_timeout_multiplier,
        environment=plan.environment,
        verifier=config.verifier,
        agents=[agent],
        tasks=[TaskConfig(path=task)],
        artifacts=config.artifacts,
        quiet=True,
    )


def load_commands(trace: TraceFile) -> list[ShellCommand]:
    """Load the commands of a trace, all of which can be run again.

    Raises:
        NotReplayableError: the trace is damaged, has a call that is not a shell command, or cannot
            be copied.
    """
    with tempfile.TemporaryDirectory(prefix="proctor-rerun-") as folder:
        path = Path(folder, trace.name)
        try:
            path.write_bytes(trace.data)
            entries = load_entries(str(path), trace.kind).entries
        except OSError as error:
            raise NotReplayableError(f"its trace cannot be copied: {reason_of(error)}") from error
        except TraceError as error:
            said = str(error).replace(str(path), trace.name)
            raise NotReplayableError(f"its trace is damaged: {said}") from error
    calls = read_calls(entries)
    lost = [call for call in calls if isinstance(call, Unreplayable)]
    if lost:
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise NotReplayableError(f"{lost[0]}{more}")
    return [call for call in calls if isinstance(call, ShellCommand)]


def _check_verified(trial: RecordedTrial) -> None:
    verifier, error = trial.config.verifier, trial.result.exception_info
    if verifier.import_path is not None:
        raise NotReplayableError(f"it was scored by a custom class, {verifier.import_path}")
    if verifier.disable:
        raise NotReplayableError("verification was disabled")
    _check_variables(verifier.env, "verifier")
    if trial.rewards is None and error is not None and error.exception_type not in REWARD_ERRORS:
        raise NotReplayableError(f"it ended in {error.exception_type}, without a reward")


def _check_own_replay(named: str, claimed: str) -> None:
    """Check that the claimed agent is the one whose actions follow from the task.

    A forged config.json could name the oracle for a trial of another agent.
    """
    if claimed != named:
        raise NotReplayableError(f"its config.json names agent {named!r}, its result {claimed!r}")


def _find_image(
    trial: RecordedTrial, environment: EnvironmentConfig, base: str | None
) -> str | None:
    """The recorded image; other environments than the sandbox have other digests."""
    is_same = trial.config.environment.import_path == environment.import_path == SANDBOX
    return trial.image if is_same and base is None else None


def _find_environment(
    trial: RecordedTrial, wanted: str | None, base: str | None, notes: list[str]
) -> EnvironmentConfig:
    recorded = trial.config.environment
    was = environment_name_for(recorded)
    if wanted is None and was not in find_usable():
        why = "which runs nothing" if was in environment_names() else "which is missing here"
        raise NotReplayableError(
            f"it ran in {was}, {why}; pass -e {find_usable()[0]} to use another"
        )
    if recorded.mounts or recorded.extra_docker_compose:
        raise NotReplayableError("it used mounts of its machine, or a compose file")
    _check_variables(recorded.env, "environment")
    if recorded.extra_allowed_hosts:
        notes.append("extra hosts that the job allowed cannot be reached")
    kwargs = {name: value for name, value in recorded.kwargs.items() if name in _TAKEN_OVER}
    if gone := sorted(recorded.kwargs.keys() - kwargs.keys()):
        notes.append(f"the environment's settings {', '.join(gone)} are not used")
    ours: dict[str, object] = {"delete": True, "extra_allowed_hosts": [], "kwargs": kwargs}
    if wanted is not None and wanted != was:
        notes.append(f"it ran in {was}; this is {wanted}")
        other = EnvironmentConfig.model_validate({"type": wanted})
        ours |= {"type": other.type, "import_path": other.import_path, "kwargs": {}}
    if base is not None:
        if (wanted or was) != "sandbox":
            raise NotReplayableError(f"--base requires the sandbox; it ran in {was}")
        ours["kwargs"] = {"base": base}
    return recorded.model_copy(update=ours)


def _check_variables(env: Mapping[str, str], whose: str) -> None:
    for name, value in env.items():
        if is_template(value) or is_redacted(value):
            raise NotReplayableError(
                f"the {whose} used the host variable {name}, which is not recorded"
            )


def _keep_plain(env: Mapping[str, str], whose: str, notes: list[str]) -> dict[str, str]:
    gone = [name for name, value in env.items() if is_template(value) or is_redacted(value)]
    if gone:
        notes.append(f"the {whose}'s variables {', '.join(gone)} are not recorded")
    return {name: value for name, value in env.items() if name not in gone}


def _make_agent(recorded: AgentConfig, name: str, env: dict[str, str]) -> AgentConfig:
    """Make an agent with the limits of the recorded one."""
    return AgentConfig(
        name=name,
        env=env,
        override_timeout_sec=recorded.override_timeout_sec,
        max_timeout_sec=recorded.max_timeout_sec,
    )
