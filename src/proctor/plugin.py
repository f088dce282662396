"""Classes by import path, `module.path:ClassName`: the one place that imports code of strangers."""

import importlib

from proctor.errors import PluginError


def load_class(import_path: str, kind: str) -> type:
    """The class that an import path names; `kind` says in messages what it was to be.

    Raises:
        PluginError: it is no import path, cannot be imported, or names no class.
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
    return found
