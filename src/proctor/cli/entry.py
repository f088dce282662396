"""Where the program begins: an interrupt while it is still loading leaves as any other does."""

import os
from importlib import import_module


def main() -> None:
    """Load the command table and run a command."""
    # pydantic would look for plugins in every installed package; whoever has one for it says so.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        run = import_module("proctor.cli.main").main
    except KeyboardInterrupt:
        os.write(2, b"proctor: interrupted\n")
        os._exit(130)
    run()
