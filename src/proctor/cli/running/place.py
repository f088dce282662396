"""Where trials run: this machine, or a cluster."""

import os
from importlib import import_module, util

import click

from proctor.errors import ClusterError
from proctor.job.options import OpenExecutor

LOCAL = "local"
_RAY = "ray"


def choose_place(on: str, *, is_insecure: bool) -> OpenExecutor | None:
    """Return what opens the executor that `--on` names; None: this process runs the trials.

    Raises:
        UsageError: there is no such place.
        ClusterError: Ray is not installed.
    """
    if on == LOCAL:
        if is_insecure:
            raise click.UsageError("--insecure-cluster goes with --on ray")
        return None
    if on != _RAY and not on.startswith(f"{_RAY}://"):
        raise click.UsageError(f"--on {on}: expected local, ray or ray://HOST:PORT")
    if util.find_spec(_RAY) is None or util.find_spec("grpc") is None:
        raise ClusterError(f"--on {on} needs Ray: pip install 'proctor[ray]'")
    # What its C++ parts print is not for the user; what matters is said by sentences.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    # On use: Ray takes a second to load.
    opened: OpenExecutor = import_module("proctor.cluster.opening").OnCluster(on, is_insecure)
    return opened
