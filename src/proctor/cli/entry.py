"""The entry point: handles interrupts even while the program is still loading."""

import os
from importlib import import_module


def main() -> None:
    """Load the command table and run a command."""
    # pydantic would search all installed packages for plugins, which is slow.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        run = import_module("proctor.cli.main").main
    except KeyboardInterrupt:
        os.write(2, b"proctor: interrupted\n")
        os._exit(130)
    run()
