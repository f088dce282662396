"""A sandbox from start to end in a process of its own: prints one JSON document of what it saw.

`python ordinary_trial.py DIRECTORY (none|public) [--user NAME] [--wait]`; with --wait it prints it
while the sandbox is up, and waits to be killed. `… DIRECTORY reap` reaps what such a one left.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from proctor.environments.sandbox.reap import reap_dead_runs  # noqa: E402
from proctor.errors import UnsupportedError  # noqa: E402
from tests.environments.orders import NO_NETWORK, PUBLIC, order_of  # noqa: E402
from tests.environments.sandboxes import find_helpers, find_scratch, running, said  # noqa: E402

_PROBE = """
id -u; cat /etc/resolv.conf
echo made > /made; rm /made; mkdir -p /odd/a; chmod 0 /odd/a /odd
echo evidence > /logs/agent/log.txt; chmod 0 /logs/agent/log.txt
touch /usr/bin/new 2>/dev/null && echo changed /usr
for host in 127.0.0.1 $HOSTS; do
    (exec 3<>"/dev/tcp/$host/$PORT" && echo "reached $host") 2>/dev/null
done; true
"""


async def live(place: Path, kind: str, user: str | None, *, wait: bool) -> dict[str, object]:
    """Do what a trial does."""
    order = order_of(place, network=PUBLIC if kind == "public" else NO_NETWORK)
    async with running(order) as sandbox:
        seen: dict[str, object] = {"network": sandbox._choice.network.value}
        knock = {"PORT": os.environ.get("PORT", "1"), "HOSTS": os.environ.get("HOSTS", "")}
        seen["probe"] = await said(sandbox, _PROBE, env=knock)
        try:
            if user:
                seen["user"] = await said(
                    sandbox, "id -u; mkdir /tmp/u; touch /tmp/u/x; chmod 700 /tmp/u", user=user
                )
        except UnsupportedError as error:
            seen["user"] = str(error)
        room = await sandbox.open_room(["/tests", "/logs/verifier"])
        await room.exec("echo 1 > /logs/verifier/reward.txt")
        await room.download_dir("/logs/verifier", sandbox.trial_paths.verifier_dir)
        seen["reward"] = sandbox.trial_paths.reward_text_path.read_text()
        seen["findings"] = [finding.code.value for finding in sandbox.findings]
        seen["helpers"] = len(find_helpers())
        if wait:
            print(json.dumps(seen), flush=True)  # noqa: T201
            await asyncio.sleep(600)
    seen["scratch left"] = len(find_scratch())
    seen["helpers left"] = len(find_helpers())
    return seen


def main() -> None:
    """See above."""
    place, kind, *options = sys.argv[1:]
    os.environ["PROCTOR_CACHE"] = str(Path(place) / "cache")
    if kind == "reap":
        reaped = reap_dead_runs()
        print(json.dumps([str(path) for path in reaped.salvaged]))  # noqa: T201
        return
    user = options[options.index("--user") + 1] if "--user" in options else None
    wait = "--wait" in options
    print(json.dumps(asyncio.run(live(Path(place), kind, user, wait=wait))))  # noqa: T201


if __name__ == "__main__":
    main()
