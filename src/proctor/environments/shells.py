"""Finds the shell of an image, which runs every command of a trial."""

from collections.abc import Awaitable, Callable

from proctor.errors import ImageError

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
