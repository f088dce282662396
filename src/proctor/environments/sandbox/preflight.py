"""Checks once, before a job starts, that sandboxes can run on this machine.

Makes an empty sandbox, with all that every sandbox needs: namespaces, users, overlays, /proc. What
single tasks need beyond that is checked when they start.
"""

import asyncio

from proctor.environments.sandbox.blueprint import Blueprint, Network, Part
from proctor.environments.sandbox.box import shared_zygote
from proctor.environments.sandbox.host_ports import check_host_ports, host_ports_of
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.refusals import check_options
from proctor.environments.sandbox.roots.builders import check_builder
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.scratch import find_place, open_run
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.errors import SandboxError
from proctor.harbor.configs import HOST_BASE, EnvironmentConfig
from proctor.sentence import reason_of


def check_job(config: EnvironmentConfig) -> None:
    """Check the options of a job for all its sandboxes."""
    options = check_options(config)
    check_builder(options.builder)
    check_host_ports(host_ports_of(config.kwargs))
    if options.base != HOST_BASE:
        store = ImageStore()
        store.lowers(store.load_base(options.base))


async def check_machine() -> None:
    """Make an empty sandbox and end it.

    Raises:
        SandboxError: it cannot be made; the message says what to do.
    """
    run = open_run(find_place().root)
    session = run.open_session("preflight")
    try:
        zygote = await shared_zygote()
        below = session.directory / "empty"
        below.mkdir(mode=0o755)
        upper, work = session.add_part(0, below)
        box = await zygote.spawn(
            Blueprint(
                session="preflight",
                root=str(session.root),
                parts=(Part("/", (str(below),), str(upper), str(work)),),
                network=Network.NONE,
                subordinate=find_subordinate_ids(),
            )
        )
        await box.kill()
    except SandboxError as error:
        # Without the name of the test sandbox, which means nothing to the user.
        reason = str(error).rpartition("could not be built: ")[2]
        raise SandboxError(f"sandboxes cannot be made on this machine: {reason}") from error
    except OSError as error:
        raise SandboxError(
            f"sandboxes cannot be made on this machine: {reason_of(error)}"
        ) from error
    finally:
        await asyncio.to_thread(delete_session, session.directory)
