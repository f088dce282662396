"""proctor runs an agent on a benchmark, scores it exactly as harbor does, and keeps the evidence.

The package itself holds only its version. Import the subpackages by name;
`tests/test_layers.py` maps them.
"""

__version__ = "0.1.0"
"""The version in pyproject.toml, repeated: reading installed metadata slows every start."""
