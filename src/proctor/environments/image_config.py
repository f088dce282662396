"""What an image starts: its ENTRYPOINT and HEALTHCHECK, as Docker's configuration has them.

Also finds the shell of an image, which runs every command of a trial.

harbor runs an image with the command `sh -c "sleep infinity"`: an ENTRYPOINT gets it as arguments,
CMD is replaced by it. `docker compose up --wait` then waits for the HEALTHCHECK.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from proctor.errors import ImageError
from proctor.task.environment import Healthcheck

KEEPER: Final = "sleep infinity"
COMMAND: Final = ("sh", "-c", KEEPER)
"""What harbor runs in a container; the shell replaces itself with KEEPER."""
SERVED_SEC: Final = 0.5
"""How long an ENTRYPOINT may take to start it."""
CHECK_DEFAULTS: Final[Mapping[str, float]] = {
    "interval_sec": 30.0,
    "timeout_sec": 30.0,
    "start_period_sec": 0.0,
    "start_interval_sec": 5.0,
    "retries": 3,
}
"""Docker's, for what a HEALTHCHECK leaves open."""
_SHELL: Final = ("/bin/sh", "-c")
_NANO: Final = 1_000_000_000


def describe_end(code: int, last: str = "") -> str:
    """Say that an ENTRYPOINT ended, given the last line that it printed."""
    said = f" ({last})" if last else ""
    return (
        f"its ENTRYPOINT ended with exit code {code}{said}; expected that it runs its arguments, "
        f"`{shlex.join(COMMAND)}`, or something else as long as the environment is used"
    )


class ImageCheck(msgspec.Struct, frozen=True, rename="pascal"):
    """HEALTHCHECK in the configuration of an image; times in nanoseconds, 0 for the default."""

    test: tuple[str, ...] = ()
    """`CMD` and words, `CMD-SHELL` and a command, or `NONE`."""
    interval: int = 0
    timeout: int = 0
    start_period: int = 0
    start_interval: int = 0
    retries: int = 0

    def to_task(self, shell: Sequence[str] = _SHELL) -> Healthcheck | None:
        """Return it as a task would define it; None if it checks nothing."""
        form, *words = self.test or ("NONE",)
        if form == "CMD-SHELL":
            words = [*shell, *words]
        elif form != "CMD":
            return None
        given = {
            "interval_sec": self.interval / _NANO,
            # Commands have limits in whole seconds.
            "timeout_sec": -(-self.timeout // _NANO),
            "start_period_sec": self.start_period / _NANO,
            "start_interval_sec": self.start_interval / _NANO,
            "retries": self.retries,
        }
        settings = {name: max(given[name], 0) or least for name, least in CHECK_DEFAULTS.items()}
        return Healthcheck.model_validate({"command": shlex.join(words), **settings})


# bash, as harbor always uses; sh for small images without it.
_SHELLS = ("bash", "sh")
_USUAL_PLACES = ("/bin", "/usr/bin", "/usr/local/bin")


async def find_shell(
    image: str, path: str, kind_of: Callable[[str], Awaitable[str | None]], advice: str = ""
) -> str:
    """Return bash, or else sh, if found in the usual directories or in the image's PATH.

    Raises:
        ImageError: the image has neither.
    """
    places = dict.fromkeys((*_USUAL_PLACES, *path.split(":")))
    for shell in _SHELLS:
        for place in places:
            if place.startswith("/") and await kind_of(f"{place}/{shell}") == "file":
                return shell
    raise ImageError(
        f"{image}: has no shell, neither bash nor sh, in {':'.join(places)}; every command of a "
        f"trial needs one{advice}"
    )
