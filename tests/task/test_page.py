"""docs/reference/task-toml.md lists every key of task.toml that is read, with its default."""

import re
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from proctor.task.config import (
    AgentConfig,
    Artifact,
    Package,
    SolutionConfig,
    StepConfig,
    TaskConfig,
    VerifierConfig,
)
from proctor.task.environment import EnvironmentConfig, Healthcheck, McpServer, Tpu
from proctor.task.table import Table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "task-toml.md"
TABLES: dict[str, type[Table]] = {
    "Top level": TaskConfig,
    "[task]": Package,
    "[agent]": AgentConfig,
    "[verifier]": VerifierConfig,
    "[environment]": EnvironmentConfig,
    "[environment.healthcheck]": Healthcheck,
    "[[environment.mcp_servers]]": McpServer,
    "[environment.tpu]": Tpu,
    "[solution]": SolutionConfig,
    "artifacts": Artifact,
    "[[steps]]": StepConfig,
}
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]*)\| (.+) \|$", re.MULTILINE)


def rows_of(heading: str) -> dict[str, tuple[str, str]]:
    """The keys of a table of the page, each with its type and default."""
    _, _, after = PAGE.read_text(encoding="utf-8").partition(f"\n### {heading}\n")
    section = re.split(r"^##", after, maxsplit=1, flags=re.MULTILINE)[0]
    return {key: (kind.strip(), default.strip()) for key, kind, default, _ in ROW.findall(section)}


def render_default(table: type[Table], key: str) -> str:
    """A default as the page has it; tables and optional keys have none."""
    field = table.model_fields[key]
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None or isinstance(default, Table):
        return ""
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    return f"`{shown}`".replace("()", "[]")


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_lists_the_keys_that_are_read_with_their_defaults(heading: str) -> None:
    table = TABLES[heading]
    rows = rows_of(heading)
    assert rows.keys() == table.model_fields.keys()
    assert {key: default for key, (_, default) in rows.items()} == {
        key: render_default(table, key) for key in table.model_fields
    }
    optional = {key for key, (kind, _) in rows.items() if kind.endswith("?")}
    assert optional == {
        key
        for key, field in table.model_fields.items()
        if not field.is_required() and field.get_default(call_default_factory=True) is None
    }
