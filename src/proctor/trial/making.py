"""Create the agent and the environment of a trial from the job and the task."""

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from proctor.errors import TrialError, UnsupportedError
from proctor.harbor.env import resolve_env
from proctor.harbor.skills import Skill, load_skills
from proctor.harbor.trial_result import AgentInfo, ModelInfo
from proctor.task.config import TaskConfig
from proctor.task.environment import TaskOS
from proctor.traces.writer import VARIABLE
from proctor.trial.agent import Agent, AgentOrder
from proctor.trial.environment import Environment, EnvironmentOrder, ModelReaching
from proctor.trial.finding import FindingCode
from proctor.trial.inside import empty_directories, is_mounted, kind_of
from proctor.trial.network import check_network, find_ignored_hosts
from proctor.trial.paths import INSIDE
from proctor.trial.trial_run import TrialRun, host_variables

TRAJECTORY = str(INSIDE.agent_dir / "trajectory.jsonl")
"""Where an agent writes its trace inside, as a variable says; it is collected with its logs."""


async def make_agent(run: TrialRun) -> Agent:
    """Create the agent, with the skills that the job provides."""
    config, task = run.spec.config.agent, run.spec.task
    host = host_variables()
    if config.skills:
        # In a thread: the skills are hashed.
        run.skills = await asyncio.to_thread(
            load_skills, [run.spec.find_place(path) for path in config.skills]
        )
    run.skills_dir = find_skills_dir(task.config, run.skills)
    if run.kinds.models is not None:
        env = resolve_env(config.env, host)
        run.models = run.kinds.models.open_agent(
            run.spec.name, f"{run.place}/agent", config, env, run.spec.replay
        )
        if run.spec.replay and run.models is not None:
            run.add_finding(
                FindingCode.MODELS_REPLAYED,
                "the answers of the agent's model come from a recording (--replay-model): this is "
                "not another sample of the model",
                recording=list(run.spec.replay),
            )
    elif not run.spec.gateway and config.model_name:
        run.add_finding(
            FindingCode.MODELS_DIRECT,
            "the agent reached its model by itself (--no-gateway): what it asked, and what that "
            "cost, are its own account",
        )
    servers = {
        server.name: server
        for server in (*task.config.environment.mcp_servers, *config.mcp_servers)
    }
    models = run.models
    run.agent = run.kinds.make_agent(
        AgentOrder(
            config=run.spec.place_agent(models.config or config if models else config),
            logs_dir=run.paths.agent_dir,
            trial_paths=run.paths,
            task=task,
            timeout_sec=run.timeouts.agent,
            mcp_servers=tuple(servers.values()),
            skills_dir=run.skills_dir,
            # Last: with a gateway, no key of the host reaches the environment.
            extra_env={
                VARIABLE: TRAJECTORY,
                **resolve_env(config.env, host),
                **(models.env if models else {}),
            },
            logger=run.logger,
        )
    )
    run.result.agent_info = describe_agent(run.agent, config.model_name)
    return run.agent


def make_environment(run: TrialRun) -> Environment:
    """Create the environment, after checking that it supports the task's network policy.

    Raises:
        Exception: raised by a third-party class, or because the config is invalid.
    """
    task = run.spec.task.config
    if not os.path.isdir(run.spec.task.directory):
        # Without the directory there is no Dockerfile either, and the agent would run on a
        # different task.
        raise TrialError(
            f"{run.spec.task.directory}: the task's directory was removed after the job was "
            "planned; restore it, and `proctor resume --also TrialError` runs this trial"
        )
    if task.environment.os is TaskOS.WINDOWS:
        raise UnsupportedError(
            f"{run.spec.task.name}: [environment] os is 'windows'; expected 'linux', which is "
            "all that is run here"
        )
    environment = run.kinds.make_environment(_order_environment(run, host_variables()))
    run.environment = environment
    is_needed = run.models is not None and run.kinds.model_port is not None
    if is_needed and not isinstance(environment, ModelReaching):
        raise UnsupportedError(
            f"a {kind_of(environment)} environment cannot reach the model gateway; pass "
            "--no-gateway to let the agent reach its model by itself, unrecorded"
        )
    if is_mounted(environment):
        _open_to_all(run.place)
    config = run.spec.config
    for warning in find_ignored_hosts(task, config.agent, config.environment):
        run.logger.warning(warning)
    kind, can = kind_of(environment), environment.capabilities
    if not run.spec.task.steps:
        check_network(run.network(), can, kind, "[agent]")
    for step in run.spec.task.steps:
        check_network(run.network(step), can, kind, f"Step {step.name!r}")
    return environment


def _order_environment(run: TrialRun, host: Mapping[str, str]) -> EnvironmentOrder:
    config, task = run.spec.config, run.spec.task
    env = find_environment_env(run, host)
    if run.models is not None:
        # A task may name a key for its whole environment; the agent gets its token for it.
        env |= {name: value for name, value in run.models.env.items() if name in env}
    compose = [run.spec.find_place(path) for path in config.environment.extra_docker_compose]
    directory = os.path.realpath(run.place)
    inside = (INSIDE.verifier_dir, INSIDE.agent_dir, INSIDE.artifacts_dir)
    return EnvironmentOrder(
        config=config.environment.model_copy(update={"extra_docker_compose": compose}),
        environment_dir=task.environment_directory,
        environment_name=task.short_name,
        session_id=config.trial_name,
        trial_paths=run.paths,
        task_env_config=task.config.environment,
        network=run.network().baseline,
        persistent_env=env,
        mounts=(
            *[bind(f"{directory}/{place.name}", place) for place in inside],
            *map(dict, config.environment.mounts or ()),
        ),
        logger=run.logger,
        model_port=run.kinds.model_port,
    )


def find_environment_env(run: TrialRun, host: Mapping[str, str]) -> dict[str, str]:
    """Variables of all programs in the environment: the task's, overridden by the job's."""
    task, job = run.spec.task.config.environment.env, run.spec.config.environment.env
    return resolve_env({**task, **job}, host)


def bind(source: str, target: PurePosixPath) -> dict[str, object]:
    """A bind mount of a host directory, in harbor's format."""
    return {"type": "bind", "source": source, "target": str(target)}


def _open_to_all(place: str) -> None:
    # Commands may run as any user inside, and write into these through a mount.
    for directory in (place, f"{place}/agent", f"{place}/verifier", f"{place}/artifacts"):
        os.chmod(directory, 0o777)  # noqa: S103 - as harbor leaves them


def describe_agent(agent: Agent, model_name: str | None) -> AgentInfo:
    """Describe the agent, by its own `to_agent_info` if it has one."""
    own = getattr(agent, "to_agent_info", None)
    if callable(own):
        # An agent written for harbor returns harbor's class, which has the same fields.
        return AgentInfo.model_validate(own(), from_attributes=True)
    return AgentInfo(
        name=agent.name(), version=agent.version() or "unknown", model_info=find_model(model_name)
    )


def find_model(model_name: str | None) -> ModelInfo | None:
    """Parse a model name with or without its provider: `provider/name`."""
    if not model_name:
        return None
    provider, slash, name = model_name.partition("/")
    if not slash:
        return ModelInfo(name=model_name)
    return ModelInfo(name=name, provider=provider) if name else None


def find_skills_dir(task: TaskConfig, skills: Sequence[Skill]) -> str | None:
    """Directory of skills inside the environment; None without skills.

    Raises:
        ValueError: the job provides skills and the task's directory for them is not absolute.
    """
    configured = task.environment.skills_dir
    if not configured:
        return str(INSIDE.default_skills_dir) if skills else None
    if skills and not PurePosixPath(configured).is_absolute():
        raise ValueError(
            f"Injected skills require environment.skills_dir to be absolute; got {configured!r}. "
            "Use an absolute path like '/skills' or omit environment.skills_dir to use "
            "/harbor/skills."
        )
    return configured


async def upload_skills(
    environment: Environment, skills: Sequence[Skill], skills_dir: str | None
) -> None:
    """Upload the job's skills to the agent's directory, readable by everyone."""
    if not skills or skills_dir is None:
        return
    targets = [PurePosixPath(skills_dir) / skill.name for skill in skills]
    await empty_directories(environment, targets, open_to_all=False)
    for skill, target in zip(skills, targets, strict=True):
        await environment.upload_dir(source_dir=skill.source, target_dir=str(target))
    listed = " ".join(shlex.quote(str(target)) for target in targets)
    await environment.exec(command=f"chmod -R a+rX {listed}", user="root")
