"""task.toml as values: defaults, old keys, and who overrides whom."""

import pytest
from pydantic import ValidationError

from proctor.errors import TaskError
from proctor.task.config import RewardStrategy, TaskConfig, VerifierMode
from proctor.task.environment import TaskOS, parse_megabytes
from proctor.task.network import NetworkMode, NetworkPolicy
from proctor.task.parse import parse_config


def parsed(text: str) -> TaskConfig:
    found = parse_config(text)
    if found.config is None:
        raise TaskError("; ".join(map(str, found.diagnostics)))
    return found.config


def test_an_empty_file_has_every_default() -> None:
    config = parsed("")
    assert config.schema_version == "1.3"
    assert config.agent.timeout_sec is None
    assert config.verifier.timeout_sec == 600.0
    assert config.environment.build_timeout_sec == 600.0
    assert config.environment.os is TaskOS.LINUX
    assert config.environment.network_policy == NetworkPolicy(NetworkMode.PUBLIC)
    assert config.agent.network_policy is None
    assert config.steps is None


def test_a_full_file_is_read() -> None:
    config = parsed(
        """
        version = "1.1"
        artifacts = ["/a", {source = "/b", destination = "c", exclude = ["*.o"]}]
        multi_step_reward_strategy = "final"
        [task]
        name = "acme/hello"
        authors = [{name = "A"}]
        [agent]
        timeout_sec = 30
        user = 1000
        network_mode = "allowlist"
        allowed_hosts = [" Packages.Example.org. "]
        [environment]
        os = "Windows"
        cpus = 2
        [environment.healthcheck]
        command = "true"
        [[environment.mcp_servers]]
        name = "tools"
        transport = "http"
        url = "http://tools"
        [environment.tpu]
        type = "v6e"
        topology = "2x2x2"
        """
    )
    assert config.schema_version == "1.1"
    assert config.multi_step_reward_strategy is RewardStrategy.FINAL
    assert config.task is not None
    assert config.task.short_name == "hello"
    assert config.agent.network_policy == NetworkPolicy(
        NetworkMode.ALLOWLIST, ("packages.example.org",)
    )
    assert config.agent.user == 1000
    assert config.environment.os.script_suffix == ".bat"
    assert config.environment.mcp_servers[0].transport == "streamable-http"
    assert config.environment.healthcheck is not None
    assert config.environment.healthcheck.retries == 3
    assert config.environment.tpu is not None
    assert config.environment.tpu.topology == "2x2x2"


def test_a_config_cannot_be_changed() -> None:
    config = parsed("")
    with pytest.raises(ValidationError, match="frozen"):
        config.agent.timeout_sec = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("size", "megabytes"), [("2G", 2048), ("512M", 512), (" 1.5g ", 1536), ("1536K", 1)]
)
def test_sizes_come_out_in_whole_megabytes(size: str, megabytes: int) -> None:
    assert parse_megabytes(size) == megabytes


@pytest.mark.parametrize("size", ["", "G", "12", "2GB", "nanM"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match=r"expected|convert"):
        parse_megabytes(size)


def test_old_sizes_are_taken() -> None:
    environment = parsed('[environment]\nmemory = "2G"\nstorage = "10G"\n').environment
    assert (environment.memory_mb, environment.storage_mb) == (2048, 10240)


def test_old_and_new_size_must_agree() -> None:
    assert parsed('[environment]\nmemory = "1G"\nmemory_mb = 1024').environment.memory_mb == 1024
    with pytest.raises(TaskError, match="memory is '2G', 2048 MiB, and memory_mb is 1024"):
        parsed('[environment]\nmemory = "2G"\nmemory_mb = 1024')


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("allow_internet = false", NetworkMode.NO_NETWORK),
        ("allow_internet = true", NetworkMode.PUBLIC),
        ("allow_internet = false\nnetwork_mode = 'public'", NetworkMode.PUBLIC),
        ("allow_internet = false\nallowed_hosts = []", NetworkMode.PUBLIC),
    ],
)
def test_the_old_network_key_gives_way_to_the_new(text: str, mode: NetworkMode) -> None:
    for place in ("environment", "verifier.environment"):
        config = parsed(f"[{place}]\n{text}\n")
        found = config.verifier.environment or config.environment
        assert (found.network_mode, found.allow_internet) == (mode, None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[task]\nname = 'hello'", "task.toml: task.name is 'hello': 'hello'; expected 'organis"),
        ("[agent]\nallowed_hosts = ['a']", "agent: allowed_hosts requires network_mode"),
        ("[agent]\nnetwork_mode = 'allowlist'", "agent: network_mode is 'allowlist', but allowed_"),
        ("[environment]\nallowed_hosts = ['a']", "environment: allowed_hosts requires"),
        (
            "[verifier]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['http://a']",
            "verifier.allowed_hosts: 'http://a'; expected a host name without scheme",
        ),
        (
            "[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]",
            "verifier: environment_mode is 'shared', but an environment is given too",
        ),
        (
            "environment.mcp_servers = [{name = 'a'}]",
            "environment.mcp_servers[0]: no url; transport 'sse' needs one",
        ),
        (
            "environment.mcp_servers = [{name = 'a', transport = 'stdio'}]",
            "environment.mcp_servers[0]: no command; transport 'stdio' needs one",
        ),
        ("environment.tpu = {type = 'v4', topology = '4'}", "environment.tpu.topology is '4'"),
        ("[[steps]]", "steps[0].name: Field required"),
    ],
)
def test_what_does_not_fit_is_said(text: str, sentence: str) -> None:
    with pytest.raises(TaskError) as refusal:
        parsed(text)
    assert sentence in str(refusal.value)


STEPS = """
[[steps]]
name = "one"
[[steps]]
name = "two"
[steps.verifier]
environment_mode = "shared"
[[steps]]
name = "three"
[steps.verifier.environment]
cpus = 3
"""


def cpus_of_verifiers(text: str) -> list[float | str | None]:
    config = parsed(text)
    found = [config.find_verifier_environment(step) for step in (None, *(config.steps or ()))]
    return ["shared" if one is None else one.cpus for one in found]


def test_a_step_says_for_itself_where_it_is_verified() -> None:
    shared = "[environment]\ncpus = 1\n"
    separate = f'{shared}[verifier]\nenvironment_mode = "separate"\n'
    own = f"{shared}[verifier.environment]\ncpus = 2\n"
    assert cpus_of_verifiers(shared + STEPS) == ["shared", "shared", "shared", 3]
    assert cpus_of_verifiers(separate + STEPS) == [1, 1, "shared", 3]
    assert cpus_of_verifiers(own + STEPS) == [2, 2, "shared", 3]


def test_an_environment_of_its_own_makes_a_verifier_separate() -> None:
    assert parsed("[verifier.environment]").verifier.mode is VerifierMode.SEPARATE
    assert parsed("").verifier.mode is None
