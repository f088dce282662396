"""Whether commands that run trials fetch the images that tasks name."""

from collections.abc import Callable, Mapping

import msgspec

from proctor.cli.ledger.progress import make_progress
from proctor.cli.running.flags import RunFlags
from proctor.harbor.configs import HOST_BASE
from proctor.job.images import ImageFetching, parse_pins, show_nothing

VARIABLE = "PROCTOR_BASE"


def with_default_base(flags: RunFlags, env: Mapping[str, str]) -> RunFlags:
    """The flags with the base of PROCTOR_BASE, if they name none and it is an image."""
    is_sandbox = flags.environment in (None, "sandbox") and flags.environment_import_path is None
    base = find_default_base(env) if is_sandbox else None
    if flags.base is not None or base is None:
        return flags
    return msgspec.structs.replace(flags, base=base)


def find_default_base(env: Mapping[str, str]) -> str | None:
    """The image of PROCTOR_BASE; None if it names none, or the host's files."""
    base = env.get(VARIABLE)
    return None if base == HOST_BASE else base or None


def choose_fetching(
    env: Mapping[str, str],
    *,
    offline: bool,
    dry_run: bool = False,
    quiet: bool = False,
    recorded: str | None = None,
) -> ImageFetching:
    """How images are fetched; `recorded` is the image that a recorded trial ran on.

    PROCTOR_BASE can say that the host's files are used instead.
    """
    return ImageFetching(
        is_offline=offline,
        is_dry_run=dry_run,
        show=show_nothing if quiet else _make_show(),
        pins=parse_pins(recorded) if recorded else None,
        uses_host=env.get(VARIABLE) == HOST_BASE,
    )


def _make_show() -> Callable[[str, int, int], None]:
    progress = make_progress()

    def show(name: str, done: int, total: int) -> None:
        progress(f"{name}, bytes", done, total)

    return show
