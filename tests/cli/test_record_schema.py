"""`proctor record schema` prints the schema of a record."""

import json

import pytest

from proctor.cli.record import command
from proctor.record.schema import render_schema


def test_the_schema_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["schema"], standalone_mode=False) == 0
    out, err = capsys.readouterr()
    assert out.encode() == render_schema()
    assert err == ""
    assert json.loads(out)["title"] == "TrialRecord"


def test_the_group_says_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--help"], standalone_mode=False) == 0
    assert "schema" in capsys.readouterr().out
