"""Where trials run: this machine, or a cluster."""

import os
from importlib import import_module, util

import click

from proctor.errors import ClusterError
from proctor.job.options import OpenExecutor

LOCAL = "local"
_RAY = "ray"


class Place(click.ParamType[str]):
    """The value of `--on`."""

    name = f"{LOCAL}|{_RAY}|{_RAY}://HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is no place."""
        if value not in (LOCAL, _RAY) and not value.startswith(f"{_RAY}://"):
            self.fail(f"{value!r}: expected local, ray or ray://HOST:PORT", param, ctx)
        return value


def choose_place(on: str, *, is_insecure: bool) -> OpenExecutor | None:
    """Return what opens the executor that `--on` names; None: this process runs the trials.

    Raises:
        UsageError: an option is of no use here.
        ClusterError: Ray is not installed.
    """
    if on == LOCAL:
        if is_insecure:
            raise click.UsageError("--insecure-cluster requires --on ray")
        return None
    if util.find_spec(_RAY) is None or util.find_spec("grpc") is None:
        raise ClusterError(f"--on {on} needs Ray: pip install 'proctor[ray]'")
    # What its C++ parts print is not for the user; what matters is said by sentences.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    # On use: Ray takes a second to load.
    opened: OpenExecutor = import_module("proctor.cluster.executor").OnCluster(on, is_insecure)
    return opened
