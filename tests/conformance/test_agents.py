"""Agents: harbor's own oracle beside ours, and agents written for harbor run by us unchanged."""

import asyncio
import logging
import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.agents.foreign import LOCAL_PRICES, check_makeable, find_carrier, find_note
from proctor.agents.kinds import NopAgent, OracleAgent, agent_names, check_agent, make_agent
from proctor.errors import AgentError, UnsupportedError
from proctor.harbor.agents import AGENTS, LATER_AGENTS, VERSION, WITHOUT_CLASS
from proctor.harbor.configs import AgentConfig
from proctor.task.directory import find_faults, load_task
from proctor.task.environment import McpServer
from proctor.trial.agent import AgentContext
from proctor.trial.environment import ExecResult
from tests.agents.places import Place, make_place, order_for
from tests.conformance.theirs import harbor_module
from tests.task.trees import TASKS, make_task

EVERY_TASK = sorted(path for path in TASKS.glob("*/*") if path.is_dir() and not find_faults(path))
_CHANGING = re.compile(
    r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|20\d\d-.{14}[.\d]*"
)
"""Ids and times, which are others in each run."""
INSTALLED = "tests.conformance.installed_agent:InstalledAgent"


def left_by(place: Place) -> dict[str, str]:
    """What a trial would find in <trial>/agent."""
    if not place.capabilities.mounted:
        asyncio.run(place.download_dir("/logs/agent", place.trial_paths.agent_dir))
    root = place.trial_paths.agent_dir
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def ran(agent: Any, place: Any, context: Any, times: int) -> list[str]:
    """How each run of an agent ended."""
    ends = []
    asyncio.run(agent.setup(place))
    for _ in range(times):
        try:
            asyncio.run(agent.run("Do it.", place, context))
        except Exception as error:  # noqa: BLE001 - whatever it is, both must raise it
            ends.append(f"{type(error).__name__}: {error}")
        else:
            ends.append("done")
    return ends


def their_oracle(place: Place, directory: Path, timeout: float | None, env: dict[str, str]) -> Any:
    paths = harbor_module("harbor.models.trial.paths").TrialPaths(place.trial_paths.trial_dir)
    return harbor_module("harbor.agents.oracle").OracleAgent(
        logs_dir=paths.agent_dir,
        task_dir=directory,
        trial_paths=paths,
        agent_timeout_sec=timeout,
        extra_env=env,
        logger=logging.getLogger("theirs"),
    )


def without_links(directory: Path, target: Path) -> Path:
    return Path(shutil.copytree(directory, target)).resolve()


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.parametrize("task", EVERY_TASK, ids=lambda path: path.name)
def test_both_oracles_do_the_same_with_every_task(
    tmp_path: Path, task: Path, mounted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_ONLY", "host")
    env = {"FROM_JOB": "job"}
    directory = without_links(task, tmp_path / "task")
    runs = max(len(load_task(directory).steps), 1)
    theirs = Answering(make_place(tmp_path / "theirs", mounted=mounted))
    ours = Answering(make_place(tmp_path / "ours", mounted=mounted))
    agent = OracleAgent(
        order_for(
            ours.place,
            AgentConfig(name="oracle"),
            load_task(directory),
            timeout_sec=7.9,
            extra_env=env,
        )
    )
    context = harbor_module("harbor.models.agent.context").AgentContext()
    expected = ran(their_oracle(theirs.place, directory, 7.9, env), theirs, context, runs)
    assert ran(agent, ours, AgentContext(), runs) == expected
    assert ours.calls == [call for call in theirs.calls if call[0] != "download_file"]
    assert left_by(ours.place) == left_by(theirs.place)


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.parametrize("script", ["echo out; echo err >&2", "exit 9", "kill -9 $$", "sleep 60"])
def test_both_oracles_leave_the_same_of_a_real_solution(
    tmp_path: Path, script: str, mounted: bool
) -> None:
    changes = {"solution/solve.sh": f"#!/bin/bash\n{script}\n"}
    directory = make_task(tmp_path / "task", **changes).resolve()
    theirs = make_place(tmp_path / "theirs", mounted=mounted)
    ours = make_place(tmp_path / "ours", mounted=mounted)
    wish = order_for(ours, AgentConfig(name="oracle"), load_task(directory), timeout_sec=1.9)
    context = harbor_module("harbor.models.agent.context").AgentContext()
    expected = ran(their_oracle(theirs, directory, 1.9, {}), theirs, context, 1)
    assert ran(OracleAgent(wish), ours, AgentContext(), 1) == expected
    assert left_by(ours) == left_by(theirs)


@pytest.mark.parametrize("name", ["oracle", "nop"])
def test_both_have_the_same_name_and_version(tmp_path: Path, name: str) -> None:
    place = make_place(tmp_path)
    agent = make_agent(order_for(place, AgentConfig(name=name)))
    kind = harbor_module(f"harbor.agents.{name}")
    theirs = getattr(kind, f"{name.capitalize()}Agent")
    assert agent.name() == theirs.name()
    assert agent.version() == theirs.version(None)
    assert isinstance(agent, OracleAgent | NopAgent)


def test_every_agent_that_harbor_knows_by_name_is_found_where_we_say() -> None:
    theirs = harbor_module("harbor.agents.factory").AgentFactory._AGENT_MAP
    paths = {name.value: kind.import_path() for name, kind in theirs.items()}
    ours = {name: f"harbor.agents.{path}" for name, path in AGENTS.items()}
    assert ours == {key: path for key, path in paths.items() if key not in ("oracle", "nop")}


def test_every_name_that_harbor_lists_is_an_agent_or_said_to_be_none() -> None:
    listed = harbor_module("harbor.models.agent.name").AgentName.values()
    assert listed == {"oracle", "nop"} | AGENTS.keys() | WITHOUT_CLASS
    assert {"oracle", "nop"} <= set(agent_names())
    for name in AGENTS:
        check_agent(AgentConfig(name=name))
    for name in WITHOUT_CLASS:
        with pytest.raises(UnsupportedError, match="no such agent; use terminus-2"):
            check_agent(AgentConfig(name=name))


@pytest.mark.harbor
@pytest.mark.parametrize("name", LATER_AGENTS)
def test_an_agent_of_a_later_harbor_is_refused_with_the_installed_version(name: str) -> None:
    refused = f"agent '{name}', which came with a later release: harbor 0.13.1, which is installed"
    with pytest.raises(UnsupportedError, match=refused):
        check_makeable(AgentConfig(name=name))


@pytest.mark.harbor
@pytest.mark.parametrize(
    ("config", "said"),
    [
        (AgentConfig(name="terminus-2"), "model_name is required .*its model is given as -m"),
        (AgentConfig(name="claude-code", kwargs={"max_turns": "x"}), "'max_turns': cannot parse"),
        (AgentConfig(name="codex", kwargs={"logger": 1}), "kwarg logger is given to every agent"),
    ],
)
def test_what_an_agent_of_harbors_refuses_is_said_before_any_trial(
    config: AgentConfig, said: str
) -> None:
    with pytest.raises(AgentError, match=said):
        check_makeable(config)


def test_an_agent_of_harbors_is_pinned_by_the_harbor_that_it_came_with() -> None:
    path = "harbor.agents.installed.codex:Codex"
    for config in (AgentConfig(name="codex"), AgentConfig(import_path=path)):
        assert find_carrier(config) == f"harbor=={VERSION}"
        assert find_note(config) is None
    assert find_carrier(AgentConfig(name="oracle")) is None
    assert find_carrier(AgentConfig(import_path="mine:Agent")) is None


@pytest.mark.harbor
def test_prices_come_from_the_installed_list_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(LOCAL_PRICES, raising=False)
    check_makeable(AgentConfig(import_path="pathlib:Path"))
    assert LOCAL_PRICES not in os.environ
    check_makeable(AgentConfig(name="codex"))
    assert os.environ[LOCAL_PRICES] == "True"
    monkeypatch.setenv(LOCAL_PRICES, "False")
    check_makeable(AgentConfig(name="codex"))
    assert os.environ[LOCAL_PRICES] == "False"


def test_a_set_up_time_out_is_told_to_agents_by_name_as_harbor_tells_it(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    config = AgentConfig(name="openclaw", override_setup_timeout_sec=7.5)
    ours: Any = make_agent(order_for(place, config))
    assert (
        ours._install_exec_timeout_sec == their_agent(place, config, ())._install_exec_timeout_sec
    )


class Answering:
    """An environment that runs nothing: it writes down what it is asked and answers the same."""

    default_user: str | int | None = "root"
    session_id = "trial"
    os = "linux"

    def __init__(self, place: Place) -> None:
        self.place = place
        self.trial_paths = place.trial_paths
        self.capabilities = place.capabilities
        self.calls: list[Any] = []

    async def exec(self, command: str, **rest: Any) -> ExecResult:
        said = {key: value for key, value in rest.items() if value is not None}
        self.calls.append(("exec", self._cleaned(command), said))
        return ExecResult("1.0\n", None, 0)

    async def _copied(self, kind: str, *paths: object, **named: object) -> None:
        places = [str(path) for path in (*paths, *named.values())]
        # Each run makes temporary files of other names.
        kept = [path for path in places if not path.startswith(tempfile.gettempdir())]
        self.calls.append((kind, kept))

    async def upload_file(self, *paths: object, **named: object) -> None:
        await self._copied("upload_file", *paths, **named)

    async def upload_dir(self, *paths: object, **named: object) -> None:
        await self._copied("upload_dir", *paths, **named)

    async def download_file(self, *paths: object, **named: object) -> None:
        await self._copied("download_file", *paths, **named)

    async def download_dir(self, *paths: object, **named: object) -> None:
        await self._copied("download_dir", *paths, **named)

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        return False

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        return False

    def _cleaned(self, text: str) -> str:
        return _CHANGING.sub("<>", text.replace(str(self.place.root.parent), "<place>"))


def their_agent(place: Place, wish: AgentConfig, servers: tuple[McpServer, ...]) -> Any:
    """The agent as harbor's own trial makes it."""
    config = harbor_module("harbor.models.trial.config").AgentConfig
    server = harbor_module("harbor.models.task.config").MCPServerConfig
    return harbor_module("harbor.agents.factory").AgentFactory.create_agent_from_config(
        config(**dict(wish)),
        logs_dir=place.trial_paths.agent_dir,
        logger=logging.getLogger("agent"),
        mcp_servers=[server(**one.model_dump()) for one in servers],
        skills_dir="/skills",
    )


SERVERS = (
    McpServer(name="files", transport="stdio", command="serve", args=("--all", "x y")),
    McpServer(name="web", transport="streamable-http", url="http://web/mcp"),
)
KEYS = dict.fromkeys(
    [
        *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "CURSOR_API_KEY", "API_KEY"),
        *("LLM_API_KEY", "WINDSURF_API_KEY", "ROVODEV_USER_EMAIL", "ROVODEV_USER_API_TOKEN"),
    ],
    "test-key-value",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_of_the_wheel_does_the_same_in_our_hands(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    wish = AgentConfig(
        name=name,
        model_name="anthropic:claude" if name == "cline-cli" else "anthropic/claude",
        env=KEYS,
    )
    seen = []
    for whose in ("theirs", "ours"):
        place = make_place(tmp_path / whose)
        room = Answering(place)
        if whose == "ours":
            order = order_for(
                place, wish, mcp_servers=SERVERS, skills_dir="/skills", extra_env=KEYS
            )
            agent: Any = make_agent(order)
            context: Any = AgentContext()
        else:
            agent = their_agent(place, wish, SERVERS)
            context = harbor_module("harbor.models.agent.context").AgentContext()
        seen.append(_sit(agent, room, context))
    assert seen[0] == seen[1]
    assert seen[0][0] == name
    assert set(seen[0][3]) == {"done"}


def _sit(agent: Any, room: Answering, context: Any) -> list[Any]:
    """Name, version, what each phase came to, what was asked for, what was said."""
    ends = []
    phases = [lambda: agent.setup(room), lambda: agent.run("Do it.", room, context)]
    # It would ask its model from here; all others do so from inside.
    for phase in phases[:1] if agent.name() == "terminus-2" else phases:
        try:
            asyncio.run(phase())
        except Exception as error:  # noqa: BLE001 - whatever it is, both must raise it
            ends.append(f"{type(error).__name__}: {room._cleaned(str(error))}")
        else:
            ends.append("done")
    agent.populate_context_post_run(context)
    info = agent.to_agent_info()
    return [info.name, info.version, info.model_info, ends, room.calls, context.model_dump()]


@pytest.mark.parametrize("mounted", [True, False])
def test_an_installed_agent_is_set_up_and_run_unchanged(tmp_path: Path, mounted: bool) -> None:
    place = make_place(tmp_path, mounted=mounted)
    config = AgentConfig(import_path=INSTALLED, model_name="openai/gpt", kwargs={"answer": "7"})
    order = order_for(place, config, mcp_servers=SERVERS, extra_env={"MY_KEY": "k"})
    agent: Any = make_agent(order)
    context = AgentContext()
    assert ran(agent, place, context, 1) == ["done"]
    info = agent.to_agent_info()
    assert (info.name, info.version) == ("installed", "9.9")
    assert (info.model_info.name, info.model_info.provider) == ("gpt", "openai")
    assert left_by(place)["out.txt"] == "model openai/gpt, key k, answer 7\n"
    assert context.n_input_tokens == len("Do it.")
    assert context.metadata == {
        "said": "model openai/gpt, key k, answer 7\n",
        "servers": ["files", "web"],
    }
    agent.populate_context_post_run(context)
    assert agent.post_run == ["False"]


def test_an_installed_agent_that_fails_raises_harbors_error(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    config = AgentConfig(import_path=INSTALLED, kwargs={"fails": True})
    agent = make_agent(order_for(place, config))
    (end,) = ran(agent, place, AgentContext(), 1)
    assert end.startswith("NonZeroAgentExitCodeError: Command failed (exit 1): bash /installed-ag")


def test_what_a_class_is_given_is_what_harbor_gives(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    config = AgentConfig(import_path=f"{__name__}:Keeping", kwargs={"mine": 1})
    order = order_for(place, config)
    harbors = ["extra_env", "logger", "logs_dir", "mine", "model_name"]
    assert sorted(made_with(make_agent(order))) == harbors
    more = replace(order, mcp_servers=SERVERS, skills_dir="/skills")
    assert sorted(made_with(make_agent(more))) == sorted([*harbors, "mcp_servers", "skills_dir"])


def made_with(agent: Any) -> dict[str, Any]:
    return dict(agent.given)


class Keeping:
    """Keeps what it is made with."""

    def __init__(self, **given: Any) -> None:
        self.given = SimpleNamespace(**given).__dict__

    name = version = setup = run = made_with
