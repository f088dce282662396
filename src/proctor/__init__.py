"""proctor sits an agent down to a benchmark, watches, marks exactly, and keeps the evidence.

The package itself holds only its version. Import the units by name;
`tests/test_layers.py` is their map.
"""

__version__ = "0.1.0"
"""The version in pyproject.toml, written out: asking the installed metadata slows every start."""
