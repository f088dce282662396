"""A real Slurm of one node on this machine: Debian's, on loopback, with keys and files of its own.

Its daemons run where an ordinary user has a name and reaches the Python of this suite: so do jobs.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from proctor.environments.sandbox.syscalls import MS_PRIVATE, MS_REC, mount
from tests.become_user import furnish, open_ways
from tests.cluster.ray_cluster import ROOT, find_below, kill_all, read_command, wait_until

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
SCRATCH = "/tmp/proctor-"  # noqa: S108 - where the script of a pilot job puts a node's files
_CONF = """ClusterName=proctor
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
AuthType=auth/munge
AuthInfo=socket={place}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=12000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def install() -> bool:
    """Install Debian's packages where they are missing and we may; whether they are there."""
    if not all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "munged"))):
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return False
        line = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(line, env=env, capture_output=True, check=False).returncode != 0:
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
            subprocess.run(line, env=env, capture_output=True, check=False)
    return all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "munged")))


@dataclass
class SlurmCluster:
    """The controller, the one node and munge."""

    place: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.place / "slurm.conf")}

    def start(self) -> None:
        self.place.chmod(0o755)
        for name in ("munge", "state", "spool"):
            (self.place / name).mkdir(mode=0o755)
        key = self.place / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        ctld, slurmd = _find_ports(2)
        host = socket.gethostname().partition(".")[0]
        conf = _CONF.format(place=self.place, host=host, ctld=ctld, slurmd=slurmd)
        (self.place / "slurm.conf").write_text(conf)
        files = [f"--{name}-file={self.place}/munge.{name}" for name in ("key", "log", "seed")]
        own = [f"--socket={self.place}/munge/socket", f"--pid-file={self.place}/munge.pid"]
        self._start("munged", "--foreground", "--force", *files, *own)
        wait_until((self.place / "munge" / "socket").exists)
        for line in (["slurmctld", "-D"], ["slurmd", "-D", "-N", host]):
            self._start(sys.executable, "-m", "tests.cluster.slurm_cluster", *line)
        wait_until(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"))

    def _start(self, *line: str) -> None:
        with (self.place / f"{Path(line[0]).name}.out").open("wb") as log:
            process = subprocess.Popen(
                line,
                env={**os.environ, **self.variables, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=ROOT,
            )
        self.processes.append(process)

    def ask(self, *line: str) -> str:
        """What a command of Slurm prints."""
        env = {**os.environ, **self.variables}
        return subprocess.run(line, env=env, capture_output=True, text=True, check=False).stdout

    def find_jobs(self) -> str:
        """Jobs that wait or run, a line each."""
        return self.ask("squeue", "-h", "-o", "%i %T")

    def find_left(self, job: str) -> list[int]:
        """Processes that name the scratch directory of a job in their command lines."""
        return [
            int(path.name)
            for path in Path("/proc").iterdir()
            if path.name.isdecimal()
            and any(f"{SCRATCH}{job}/" in word for word in read_command(int(path.name)))
        ]

    def stop(self) -> None:
        self.ask("scancel", "--user=root")
        for process in reversed(self.processes):
            # Jobs are below slurmd's helpers, which are not its children.
            kill_all(find_below(process.pid))
            process.wait()


def _find_ports(n: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [int(server.getsockname()[1]) for server in taken]
    for server in taken:
        server.close()
    return ports


if __name__ == "__main__":
    os.unshare(os.CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    open_ways(*(Path(one).resolve() for one in (sys.base_prefix, sys.prefix, ROOT)))
    furnish(set())
    os.chdir("/")
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - a command line, not a shell's
