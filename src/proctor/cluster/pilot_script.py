"""The batch script of a pilot job: Ray on every node of a Slurm allocation, `proctor` on the first.

Renders text only; `slurm` submits it. People may edit it and submit it by hand.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class Pilot:
    """A job of Slurm that runs one `proctor` command."""

    name: str
    """Name of the job of proctor."""
    line: Sequence[str]
    """The command and its arguments, without the name of the program."""
    python: str
    """The interpreter, at the same path on every node."""
    directory: Path
    """Working directory, shared by the nodes."""
    pilots: Path
    """Directory for the files of pilot jobs, shared by the nodes."""
    options: Sequence[str] = ()
    """Options of sbatch, each one word."""

    @property
    def label(self) -> str:
        """Name for Slurm, which gives `%` and blanks a meaning."""
        return f"proctor-{_UNSAFE.sub('_', self.name)}"


def render_script(pilot: Pilot) -> str:
    """Return the script, with the options of sbatch in it."""
    options = [f"--job-name={pilot.label}", *_OPTIONS, *pilot.options]
    return _SCRIPT.format(
        options="\n".join(f"#SBATCH {shlex.quote(each)}" for each in options),
        directory=shlex.quote(str(pilot.directory)),
        python=shlex.quote(pilot.python),
        folder=shlex.quote(str(pilot.pilots / pilot.label)),
        line=shlex.join(pilot.line),
    )


# One Ray node on each machine; a machine that dies does not take the others with it; `resume` runs
# what is missing, not Slurm; a minute before the time limit, the job ends as by Ctrl-C.
_OPTIONS: Final = ("--ntasks-per-node=1", "--no-kill", "--no-requeue", "--signal=B:TERM@60")

_SCRIPT: Final = r"""#!/bin/bash
{options}

# Written by `proctor --on slurm`. It starts Ray on every node of the allocation, runs proctor on
# the first one, and ends them. It may be edited; submit it with sbatch.

cd {directory} || exit 2
python={python}
# Shared by the nodes: the token, the address of the first node, logs.
pilot={folder}-$SLURM_JOB_ID
# On each node: files of Ray, copies of tasks, sandboxes. Removed at the end. A local disk, and a
# short path: sockets are in it.
scratch=/tmp/proctor-$SLURM_JOB_ID

(
    umask 077
    mkdir -p "$pilot" && rm -f "$pilot"/* &&
        od -An -tx1 -N32 /dev/urandom | tr -d ' \n' > "$pilot/token"
) || exit 2
unset RAY_ADDRESS RAY_AUTH_TOKEN RAY_BACKEND_LOG_LEVEL
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$pilot/token
export RAY_USAGE_STATS_ENABLED=0 RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 RAY_raylet_start_wait_time_s=180
# At the end there is nothing to wait for.
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0

# Runs on every node, until the job ends.
start_node() {{
    # So that what follows Ray is done.
    trap : TERM
    mkdir -p -m 700 "$scratch"
    if [ -L "$scratch" ] || [ ! -O "$scratch" ]; then
        echo "$scratch on $SLURMD_NODENAME belongs to somebody else"
        touch "$pilot/ended-$SLURM_NODEID"
        return 2
    fi
    # Sandboxes need a local disk, and nodes must not share what they remove.
    export PROCTOR_CACHE=$scratch/cache
    words=(--block --num-cpus="$SLURM_CPUS_ON_NODE" --temp-dir="$scratch/ray"
        --disable-usage-stats --include-log-monitor=false)
    memory=${{SLURM_MEM_PER_NODE:-$((${{SLURM_MEM_PER_CPU:-0}} * SLURM_CPUS_ON_NODE))}}
    if [ "$memory" -gt 0 ]; then
        # In MiB: a tenth for what travels, a tenth for Ray's processes, the rest for trials.
        store=$((memory / 10 < 100 ? 100 : memory / 10 > 2000 ? 2000 : memory / 10))
        words+=(--object-store-memory=$((store << 20)))
        words+=(--memory=$(((memory - store - memory / 10) << 20)))
    fi
    if [ "$SLURM_NODEID" = 0 ]; then
        # Free ports, because other jobs may use this machine.
        read -r address client < <("$python" -m proctor.cluster.pilot ports)
        words+=(--head --port="${{address##*:}}" --ray-client-server-port="$client"
            --include-dashboard=false)
        echo "$address" > "$pilot/address.new"
        mv "$pilot/address.new" "$pilot/address"
    else
        until [ -s "$pilot/address" ]; do sleep 1; done
        words+=(--address="$(cat "$pilot/address")")
    fi
    "$python" -m ray.scripts.scripts start "${{words[@]}}"
    touch "$pilot/ended-$SLURM_NODEID"
    # Sandboxes may leave directories that even their owner may not list.
    chmod -R u+rwX "$scratch" 2> /dev/null
    rm -rf "$scratch"
}}
export -f start_node
export pilot scratch python
srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --export=ALL --overlap \
    --cpu-bind=none --no-kill --wait=0 --kill-on-bad-exit=0 --label \
    bash -c start_node > "$pilot/nodes.log" 2>&1 &
nodes=$!

# A signal for this script is one for what it runs: sandboxes end, and results are kept.
child='' is_stopped='' is_signal=''
trap 'is_stopped=1 is_signal=1; [ -z "$child" ] || kill -TERM "$child"' TERM INT
run() {{
    [ -z "$is_stopped" ] || return 130
    "$@" &
    child=$!
    while :; do
        is_signal=''
        wait "$child"
        code=$?
        # A signal ends `wait`, not the child.
        [ -n "$is_signal" ] || break
    done
    child=''
    return "$code"
}}

run "$python" -m proctor.cluster.pilot wait "$pilot" "$SLURM_NNODES" &&
    export RAY_ADDRESS="$(cat "$pilot/address")" &&
    run "$python" -m proctor {line}
code=$?

rm -f "$pilot/token"
# A signal for the processes of the nodes, so that they tidy up; srun would kill them.
scancel --signal=TERM "$SLURM_JOB_ID.0" 2> /dev/null
for _ in {{1..60}}; do
    kill -0 "$nodes" 2> /dev/null || break
    sleep 0.5
done
kill -TERM "$nodes" 2> /dev/null
wait "$nodes"
echo "$code" > "$pilot/code.new"
mv "$pilot/code.new" "$pilot/code"
exit "$code"
"""
