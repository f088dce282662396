"""Classes by import path, `module.path:ClassName`: the one place that imports code of strangers."""

import importlib
from collections.abc import Sequence

from proctor.errors import PluginError


def load_class(import_path: str, kind: str, methods: Sequence[str] = ()) -> type:
    """The class that an import path names; `kind` says in messages what it was to be.

    Raises:
        PluginError: it is no import path, cannot be imported, names no class, or one that lacks
            some of the methods.
    """
    module_name, colon, class_name = import_path.partition(":")
    if not colon or not module_name or not class_name:
        raise PluginError(
            f"{import_path!r} names no {kind}; expected module.path:ClassName, such as "
            "my_package.my_module:MyClass"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise PluginError(
            f"{import_path}: the {kind}'s module cannot be imported: "
            f"{type(error).__name__}: {error}; is it installed, or on PYTHONPATH?"
        ) from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise PluginError(f"{import_path}: {module_name} has no class {class_name!r}")
    _check_methods(import_path, found, kind, methods)
    return found


def _check_methods(import_path: str, found: type, kind: str, methods: Sequence[str]) -> None:
    missing = [name for name in methods if not callable(getattr(found, name, None))]
    # Those that a class above it wants and nobody has written: it cannot be made.
    missing += sorted(set(getattr(found, "__abstractmethods__", ())).difference(missing))
    if methods and missing:
        article = "an" if kind[0] in "aeiou" else "a"
        raise PluginError(
            f"{import_path}: has no {', '.join(missing)}; expected {article} {kind} with harbor's "
            f"interface: {', '.join(methods)}"
        )
