"""Whether sandboxes can be had on this machine at all: asked once, before a job makes anything.

An empty one is made and ended, with all that every sandbox takes: namespaces, users, overlays,
/proc. What a single task needs beyond that is seen when it is its turn.
"""

import asyncio

from proctor.environments.sandbox.blueprint import Blueprint, Network, Part
from proctor.environments.sandbox.box import shared_zygote
from proctor.environments.sandbox.host_ports import check_host_ports, host_ports_of
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.refusals import check_wishes
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.scratch import Session, find_place, open_run
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.errors import SandboxError
from proctor.harbor.configs import HOST_BASE, EnvironmentConfig
from proctor.sentence import reason_of


def check_job(config: EnvironmentConfig) -> None:
    """See that what a job asks of all its sandboxes can be had.

    Raises:
        UnsupportedError: it asks for what the sandbox does not have; names the option.
        ImageError: its base was not imported.
    """
    base = check_wishes(config)
    check_host_ports(host_ports_of(config.kwargs))
    if base != HOST_BASE:
        store = ImageStore()
        store.rootfs(store.load_base(base))


async def check_machine() -> None:
    """Make an empty sandbox and end it.

    Raises:
        SandboxError: it cannot be made; says what to do.
    """
    run = open_run(find_place().root)
    session = run.open_session("preflight")
    try:
        zygote = await shared_zygote()
        box = await zygote.spawn(_draw(session))
        await box.kill()
    except SandboxError as error:
        reason = str(error).rpartition("could not be built: ")[2]
        raise SandboxError(f"sandboxes cannot be made on this machine: {reason}") from error
    except OSError as error:
        raise SandboxError(
            f"sandboxes cannot be made on this machine: {reason_of(error)}"
        ) from error
    finally:
        await asyncio.to_thread(delete_session, session.directory)


def _draw(session: Session) -> Blueprint:
    below = session.directory / "empty"
    below.mkdir(mode=0o755)
    upper, work = session.add_part(0, below)
    return Blueprint(
        session="preflight",
        root=str(session.root),
        parts=(Part("/", (str(below),), str(upper), str(work)),),
        network=Network.NONE,
        subordinate=find_subordinate_ids(),
    )
