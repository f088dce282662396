"""Load classes by import path, `module.path:ClassName`, and optional libraries.

The only place that imports user code.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from proctor.errors import PluginError


def load_class(import_path: str, kind: str, methods: Sequence[str] = ()) -> type:
    """Import the class that a path names; `kind` says in messages what was expected.

    Raises:
        PluginError: it is not an import path, the module cannot be imported, has no such class, or
            the class lacks some of the methods.
    """
    module_name, colon, class_name = import_path.partition(":")
    if not colon or not module_name or not class_name:
        raise PluginError(
            f"{import_path!r} names no {kind}; expected module.path:ClassName, such as "
            "my_package.my_module:MyClass"
        )
    try:
        module = importlib.import_module(module_name)
    # User code can raise anything at import.
    except Exception as error:
        raise PluginError(
            f"{import_path}: the {kind}'s module cannot be imported: "
            f"{type(error).__name__}: {error}; is it installed, or on PYTHONPATH?"
        ) from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise PluginError(f"{import_path}: {module_name} has no class {class_name!r}")
    missing = [name for name in methods if not callable(getattr(found, name, None))]
    # Abstract methods of a base class that were not implemented: instantiating it would fail.
    missing += sorted(set(getattr(found, "__abstractmethods__", ())).difference(missing))
    if methods and missing:
        article = "an" if kind[0] in "aeiou" else "a"
        raise PluginError(
            f"{import_path}: has no {', '.join(missing)}; expected {article} {kind} with harbor's "
            f"interface: {', '.join(methods)}"
        )
    return found


def load_module(name: str) -> Any:
    """Import a library that is used where it is installed.

    Raises:
        PluginError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PluginError(
            f"{name} cannot be imported: {error}; install it with: pip install {name}"
        ) from error
