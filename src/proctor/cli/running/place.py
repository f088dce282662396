"""Where trials run: this machine, or a cluster."""

import os
from collections.abc import Sequence
from importlib import import_module, util
from pathlib import Path
from types import ModuleType

import click
import msgspec

from proctor.errors import ClusterError
from proctor.job.options import OpenExecutor

LOCAL = "local"
SLURM = "slurm"
_RAY = "ray"


class SlurmOptions(msgspec.Struct, frozen=True):
    """Options of `--on slurm`."""

    options: tuple[str, ...]
    """Options of sbatch."""
    print_script: bool


def choose_slurm(on: str, options: tuple[str, ...], *, print_script: bool) -> SlurmOptions | None:
    """Return the options of a pilot job; None if `--on` names another place.

    Raises:
        UsageError: an option is of no use there, or is none of sbatch.
    """
    if on != SLURM:
        if options or print_script:
            name = "--slurm-arg" if options else "--print-script"
            raise click.UsageError(f"{name} requires --on slurm")
        return None
    _load_slurm().check_slurm_options(options)
    return SlurmOptions(options, print_script)


def run_on_slurm(slurm: SlurmOptions, words: Sequence[str], directory: Path) -> int:
    """Run a command of proctor, by its words, in a pilot job of Slurm; returns its exit code."""
    pilots = _load_slurm()
    pilot = pilots.make_pilot(words, directory.name, slurm.options)
    code: int = pilots.run_pilot(pilot, directory, print_script=slurm.print_script)
    return code


def _load_slurm() -> ModuleType:
    return import_module("proctor.cli.running.slurm")


def choose_place(on: str, *, is_insecure: bool) -> OpenExecutor | None:
    """Return what opens the executor that `--on` names; None: this process runs the trials.

    That of a pilot job of Slurm is the cluster in it.

    Raises:
        UsageError: there is no such place.
        ClusterError: Ray is not installed.
    """
    if on == LOCAL:
        if is_insecure:
            raise click.UsageError("--insecure-cluster requires --on ray")
        return None
    if on == SLURM and is_insecure:
        raise click.UsageError("--insecure-cluster requires --on ray; a pilot job has a token")
    if on not in (_RAY, SLURM) and not on.startswith(f"{_RAY}://"):
        raise click.UsageError(f"--on {on}: expected local, ray, ray://HOST:PORT or slurm")
    if util.find_spec(_RAY) is None or util.find_spec("grpc") is None:
        raise ClusterError(f"--on {on} needs Ray: pip install 'proctor[ray]'")
    # What its C++ parts print is not for the user; what matters is said by sentences.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    # On use: Ray takes a second to load.
    opened: OpenExecutor = import_module("proctor.cluster.opening").OnCluster(on, is_insecure)
    return opened
