"""Limits, networks and clocks of a trial: what needs no environment."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from proctor.harbor.configs import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from proctor.task.config import TaskConfig as Toml
from proctor.task.network import NetworkMode, NetworkPolicy
from proctor.trial.clock import Clock, Reading, find_jump
from proctor.trial.environment import Capabilities
from proctor.trial.network import check_network, find_ignored_hosts, plan_network
from proctor.trial.timeouts import Timeouts, find_timeouts


def config(**told: object) -> TrialConfig:
    return TrialConfig.model_validate(
        {"task": TaskConfig(path=Path("t")), "trial_name": "t", "trials_dir": "j", **told}
    )


def toml(**tables: object) -> Toml:
    return Toml.model_validate(tables)


def test_limits_without_a_word_are_harbors() -> None:
    assert find_timeouts(config(), toml()) == Timeouts(600.0, 360.0, None, 600.0)


def test_a_limit_is_capped_and_then_multiplied_by_the_phases_own_multiplier() -> None:
    told = config(
        timeout_multiplier=2.0,
        agent_timeout_multiplier=3.0,
        agent={"max_timeout_sec": 10},
        verifier={"override_timeout_sec": 7},
    )
    found = find_timeouts(told, toml(agent={"timeout_sec": 60}))
    assert found == Timeouts(1200.0, 720.0, 30.0, 14.0)


def test_a_step_inherits_the_agents_limit_and_not_the_verifiers() -> None:
    task = toml(
        agent={"timeout_sec": 5}, verifier={"timeout_sec": 5}, steps=[{"name": "a"}, {"name": "b"}]
    )
    assert task.steps is not None
    found = find_timeouts(config(), task, task.steps[0])
    assert (found.agent, found.verifier) == (5.0, 600.0)


def test_without_a_limit_on_the_agent_its_maximum_is_not_looked_at() -> None:
    assert find_timeouts(config(agent={"max_timeout_sec": 9}), toml()).agent is None


NO_NETWORK = NetworkPolicy(NetworkMode.NO_NETWORK)
PUBLIC = NetworkPolicy(NetworkMode.PUBLIC)


def test_hosts_of_the_job_turn_no_network_into_a_list() -> None:
    plan = plan_network(
        toml(environment={"network_mode": "no-network"}),
        AgentConfig(extra_allowed_hosts=["b.org"]),
        EnvironmentConfig(extra_allowed_hosts=["a.org"]),
    )
    assert plan.baseline == NetworkPolicy(NetworkMode.ALLOWLIST, ("a.org",))
    assert plan.agent == NetworkPolicy(NetworkMode.ALLOWLIST, ("a.org", "b.org"))
    assert plan.verifier == plan.baseline


def test_hosts_of_the_job_are_ignored_aloud_where_the_network_is_public() -> None:
    agent, environment = AgentConfig(extra_allowed_hosts=["b.org"]), EnvironmentConfig()
    assert plan_network(toml(), agent, environment).agent == PUBLIC
    assert list(find_ignored_hosts(toml(), agent, environment)) == [
        "Run-specific allowlist host(s) ['b.org'] are ignored because the effective network policy "
        "is public."
    ]


def test_a_separate_verifier_has_a_baseline_of_its_own() -> None:
    task = toml(verifier={"environment": {"network_mode": "no-network"}})
    plan = plan_network(task, AgentConfig(), EnvironmentConfig())
    assert (plan.baseline, plan.separate_baseline, plan.verifier) == (
        PUBLIC,
        NO_NETWORK,
        NO_NETWORK,
    )


@pytest.mark.parametrize(
    ("tables", "can", "message"),
    [
        (
            {"agent": {"network_mode": "no-network"}},
            Capabilities(disable_internet=True),
            "[agent] agent phase network policy differs from the agent environment baseline, but "
            "this environment cannot change network policy after start.",
        ),
        (
            {"verifier": {"network_mode": "no-network"}},
            Capabilities(),
            "network_mode='no-network' is not supported by x environment. Environment providers "
            "must enforce the requested network policy or reject the task.",
        ),
        (
            {
                "verifier": {"network_mode": "no-network", "environment": {}},
            },
            Capabilities(disable_internet=True),
            "[agent] verifier phase network policy differs from the separate verifier environment "
            "baseline, but this environment cannot change network policy after start.",
        ),
    ],
)
def test_a_phase_that_the_environment_cannot_give_is_refused_in_harbors_words(
    tables: dict[str, object], can: Capabilities, message: str
) -> None:
    plan = plan_network(toml(**tables), AgentConfig(), EnvironmentConfig())
    with pytest.raises(ValueError, match="network") as refused:
        check_network(plan, can, "x", "[agent]")
    assert str(refused.value) == message


def test_a_clock_may_drift_but_not_jump() -> None:
    start = Reading(datetime(2026, 1, 1, tzinfo=UTC), 100.0)
    near = Reading(start.wall + timedelta(seconds=11.9), 110.0)
    far = Reading(start.wall - timedelta(seconds=5), 101.0)
    assert find_jump(start, near) is None
    assert find_jump(start, far) == -6.0


def test_local_time_has_no_zone() -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    local = Clock(wall=lambda: moment).local_now()
    assert local.tzinfo is None
    assert local.astimezone(UTC) == moment
