"""Modules that take long to import, for the few tests that use them: collecting needs none."""

import importlib
from typing import Any


class LazyModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self.module = name

    def __getattr__(self, name: str) -> Any:
        # pytest asks every name of a test module whether it is a test (`__test__`, …).
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.module), name)
