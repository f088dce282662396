"""Places on which tests build root file systems, with real sandboxes and layers."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

from proctor.environments.sandbox.blueprint import Blueprint, Command, Network, Part
from proctor.environments.sandbox.box import Box, Zygote, start_zygote
from proctor.environments.sandbox.roots.build import Root, build_root
from proctor.environments.sandbox.roots.builders import RootOptions
from proctor.environments.sandbox.scratch import Session
from proctor.trial.finding import Finding, FindingCode
from tests.task.trees import write


def found_beside_the_network(root: Root) -> list[Finding]:
    """What is said of a root on a machine with and without a helper for its network."""
    return [one for one in root.findings if one.code is not FindingCode.NETWORK_SHARED]


class Site:
    """A place to build on: a cache, a scratch directory and a task's environment directory."""

    def __init__(self, root: Path, zygote: Zygote) -> None:
        self.root = root
        self.task = root / "environment"
        self.task.mkdir(exist_ok=True)
        self.n_spawned = 0
        self._zygote = zygote
        self._n_looked = 0

    async def spawn(self, blueprint: Blueprint) -> Box:
        """What a runner gives, and a count of it."""
        self.n_spawned += 1
        return await self._zygote.spawn(blueprint)

    async def build(
        self,
        dockerfile: str | None = None,
        *,
        image: str | None = None,
        base: str = "small",
        builder: str = "auto",
        force: bool = False,
    ) -> Root:
        if dockerfile is not None:
            write(self.task, {"Dockerfile": dockerfile})
        scratch = self.root / "scratch"
        scratch.mkdir(exist_ok=True)
        return await build_root(
            self.task,
            image,
            RootOptions(base, builder),
            scratch=scratch,
            spawn=self.spawn,
            force=force,
        )

    async def said(self, root: Root, script: str) -> str:
        """What a script prints in a sandbox on that root, as a trial would run it."""
        self._n_looked += 1
        directory = self.root / f"look{self._n_looked}"
        directory.mkdir()
        session = Session(directory)
        session.root.mkdir()
        parts = tuple(
            Part(target, lowers, *map(str, session.add_part(number, Path(lowers[0]))))
            for number, (target, lowers) in enumerate(root.parts)
        )
        box = await self._zygote.spawn(
            Blueprint("look", str(session.root), parts, network=Network.NONE)
        )
        try:
            command = Command(("/bin/sh", "-c", script), root.workdir, dict(root.env), root.user)
            return (await box.run(command)).output.decode().strip()
        finally:
            await box.kill()

    @property
    def layers(self) -> list[Path]:
        """Everything in the cache of layers, two levels deep, but for locks."""
        found = (self.root / "cache/layers").glob("*/*")
        return sorted(path for path in found if path.name not in ("lock", "current", "build.log"))


@asynccontextmanager
async def site_at(root: Path) -> AsyncIterator[Site]:
    zygote = await start_zygote()
    try:
        yield Site(root, zygote)
    finally:
        await zygote.close()


type Act = Callable[[Site], Coroutine[None, None, None]]
type OnSite = Callable[[Act], None]
