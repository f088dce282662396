"""`proctor trace follow`: what it does not follow."""

from pathlib import Path

import pytest

from tests.cli.programs import Proctor


@pytest.mark.parametrize("name", ["atif", "conversation"])
def test_another_kind_of_trace_is_not_followed(proctor: Proctor, tmp_path: Path, name: str) -> None:
    texts = {
        "atif": '{"schema_version": "ATIF-v1.7", "agent": {}, "steps": []}',
        "conversation": '{"role": "user", "content": "x"}\n',
    }
    path = tmp_path / f"{name}.jsonl"
    path.write_text(texts[name])
    ran = proctor("trace", "follow", "--once", path)
    assert (ran.code, ran.out) == (2, "")
    assert "expected a trajectory. `proctor show` shows it" in ran.err


@pytest.mark.parametrize(
    "options", [["--full", "--json"], ["--once", "--until-idle", "1"], ["--until-idle", "nan"]]
)
def test_options_without_effect_are_refused(
    proctor: Proctor, tmp_path: Path, options: list[str]
) -> None:
    ran = proctor("trace", "follow", tmp_path / "t.jsonl", *options)
    assert (ran.code, ran.out) == (2, "")
