"""proctor runs an agent on a benchmark, scores it exactly as harbor does, and keeps the evidence.

In Python, `proctor.load` gives the trials of a ledger or of jobs, and `proctor.compare` compares
two of its experiments: see `proctor.api`. Import everything else from the subpackages by name;
`tests/test_layers.py` maps them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.api import compare as compare
    from proctor.api import load as load

__version__ = "0.1.0"
"""The version in pyproject.toml, repeated: reading installed metadata slows every start."""


def __getattr__(name: str) -> Any:
    # Imported on first use: every command imports this package, and few need these.
    if name in ("compare", "load"):
        return getattr(importlib.import_module("proctor.api"), name)
    raise AttributeError(f"module 'proctor' has no attribute {name!r}")
