"""The shell of an image, by which every command of a trial is run."""

from collections.abc import Awaitable, Callable

from proctor.errors import ImageError

_SHELLS = ("bash", "sh")
"""As harbor, which knows bash alone; and what small images have instead."""
_USUAL_PLACES = ("/bin", "/usr/bin", "/usr/local/bin")


async def find_shell(
    image: str, path: str, kind_of: Callable[[str], Awaitable[str | None]], advice: str = ""
) -> str:
    """Whichever of bash and sh it has, looked for in the usual places and in the image's PATH.

    Raises:
        ImageError: it has neither.
    """
    places = dict.fromkeys((*_USUAL_PLACES, *path.split(":")))
    for shell in _SHELLS:
        for place in places:
            if place.startswith("/") and await kind_of(f"{place}/{shell}") == "file":
                return shell
    raise ImageError(
        f"{image}: has no shell, neither bash nor sh, in {':'.join(places)}; a trial runs every "
        f"command by one{advice}"
    )
