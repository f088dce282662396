"""What runs in a container, as the engine sees it: nothing of the container is asked."""

from proctor.environments.docker.program import run_docker
from proctor.trial.environment import Process

_LONGEST_COMMAND = 512
_KEEPER = "sleep infinity"
_DEAD = ("Z", "X")


async def list_processes(container: str, first: int) -> list[Process]:
    """Everything but the first process and the one sleeper that it keeps; pids are the engine's.

    Raises:
        DockerError: the container or the engine is gone.
    """
    told = await run_docker("top", container, "-eo", "pid,ppid,stat,args")
    rows = [line.split(None, 3) for line in told.out.splitlines()[1:]]
    rows = [row for row in rows if len(row) == 4]
    found, has_keeper = [], False
    for pid, parent, state, command in rows:
        if int(pid) == first or state.startswith(_DEAD):
            continue
        if int(parent) == first and command == _KEEPER and not has_keeper:
            # One, and no more: whoever calls himself so is seen.
            has_keeper = True
            continue
        found.append(Process(int(pid), command[:_LONGEST_COMMAND]))
    return found
