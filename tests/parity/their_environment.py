"""An environment for the real harbor that builds the tasks of this suite: FROM, WORKDIR and RUN."""

from pathlib import Path

from benchmarks.theirs_environments import OverlayEnvironment


class BuildingEnvironment(OverlayEnvironment):
    """Runs what the Dockerfile says after the root is there, as a build would before."""

    @staticmethod
    def type() -> str:
        """Its name in harbor."""
        return "parity"

    @property
    def _directory(self) -> Path:
        """Beside the jobs directory: whoever removes the one removes the other."""
        jobs = Path(self.trial_paths.trial_dir).parent.parent
        return jobs.with_name(f"{jobs.name}-overlays") / str(self.session_id)

    async def start(self, force_build: bool) -> None:
        """Bring it up, then build."""
        await super().start(force_build)
        dockerfile = Path(self.environment_dir) / "Dockerfile"
        for line in dockerfile.read_text(encoding="utf-8").splitlines():
            if not line.startswith("RUN "):
                continue
            command = line.removeprefix("RUN ")
            done = await self.exec(command)
            if done.return_code != 0:
                raise RuntimeError(f"Build failed: {command}")

    async def stop(self, delete: bool) -> None:
        """Also when it never came up."""
        if hasattr(self, "_holder"):
            await super().stop(delete)
