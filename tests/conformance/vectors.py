"""The golden vectors on disk: PROCTOR_VECTORS when it is set, else the copy beside this file.

A test module named `test_*_vectors.py` takes its parameters from `line_params`, one test a line.
`test_vector_files.py` sees to it that no line is left out.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

type Line = dict[str, Any]
"""One vector as it stands in its file: another program's facts, not a value of ours."""

VECTORS = Path(os.environ.get("PROCTOR_VECTORS") or Path(__file__).parent / "vectors")


def load_lines(name: str) -> list[Line]:
    """Every vector of a file, in order; none when the directory has no such file."""
    path = VECTORS / f"{name}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def line_params(name: str) -> list[ParameterSet]:
    """One parameter for each line of a file, named after its id and its place."""
    return [
        pytest.param(line, id=f"{line.get('id', '')}@{name}.jsonl:{number}")
        for number, line in enumerate(load_lines(name), start=1)
    ]
