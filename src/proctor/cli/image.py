"""`proctor image`: manages root file systems for the sandbox."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line
from proctor.environments.sandbox.roots.images import Image, ImageStore, Known
from proctor.sentence import count_of, render_size

_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@click.group("image")
def command() -> None:
    """Import, list and remove root file systems for the sandbox.

    Example: proctor image list
    """


@command.command("import")
@click.argument("name")
@click.argument("source", type=PATH, metavar="(TAR|DIR)")
@click.option(
    "--replace", is_flag=True, help="Reassign NAME to this image if another image has it."
)
@click.option(
    "-e",
    "--env",
    "variables",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set an environment variable for every command; can be repeated.",
)
@click.option("--workdir", help="Working directory of commands.  [default: the image's, else /]")
@click.option("--user", help="User that runs commands.  [default: the image's, else root]")
@json_option
def import_(
    name: str,
    source: str,
    replace: bool,
    variables: tuple[str, ...],
    workdir: str | None,
    user: str | None,
    as_json: bool,
) -> int:
    """Import an image or a root file system under a name.

    An image with its layers comes from `docker save debian:12 -o debian.tar`, or from an OCI image
    layout (a directory, or a tar archive of it). Its variables, working directory and user are
    imported too; its entrypoint is not run. If there are several images, NAME selects one by its
    tags. A root file system is a directory or a tar archive, as written by `docker export`, and has
    no such settings: pass those that matter as options. Archives are plain, or compressed with
    gzip, xz, bzip2 or zstd. The image is used by a Dockerfile that is FROM this name, by a task
    with this docker_image, and by --base.

    Example: proctor image import debian:12 debian.tar
    """
    known = Known(_parse_variables(variables), _check_workdir(workdir), user)
    done = ImageStore().import_image(
        name, Path(source), known, now=datetime.now(UTC), replace=replace
    )
    if as_json:
        print_json({"image": _document(done.image), "is_new": done.is_new})
        return 0
    image = done.image
    if done.is_new:
        print_line(
            f"{image.name}: imported, {count_of(image.n_entries, 'entry', 'entries')}, "
            f"{render_size(image.size)}"
        )
    else:
        print_line(f"{image.name}: nothing to do, the same image has this name already")
    print_line(f"  {image.pin}")
    if image.image_id:
        print_line(f"  image id {image.image_id}")
    for note in image.notes:
        print_line(f"  {note}")
    return 0


@command.command("list")
@json_option
def list_(as_json: bool) -> int:
    """List imported images.

    Example: proctor image list
    """
    images = ImageStore().list_images()
    if as_json:
        print_json({"images": [_document(image) for image in images]})
        return 0
    if not images:
        print_line("no images; `proctor image import NAME (TAR|DIR)` brings one in")
    rows = [("name", "digest", "size", "imported"), *map(_row, images)] if images else []
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print_line("  ".join(cells).rstrip())
    return 0


@command.command("remove")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> int:
    """Remove an image.

    Its files are deleted with its last name. An image that a run is using is not removed.

    Example: proctor image remove debian:12
    """
    image = ImageStore().remove(name)
    if as_json:
        print_json({"removed": _document(image)})
    else:
        print_line(f"{image.name}: removed")
    return 0


def _parse_variables(texts: tuple[str, ...]) -> Mapping[str, str]:
    variables = {}
    for text in texts:
        found = _VARIABLE.fullmatch(text)
        if found is None:
            raise click.UsageError(f"--env {text!r}; expected KEY=VALUE")
        variables[found[1]] = found[2]
    return variables


def _check_workdir(path: str | None) -> str | None:
    if path is not None and not path.startswith("/"):
        raise click.UsageError(f"--workdir {path!r}; expected an absolute path")
    return path


def _row(image: Image) -> tuple[str, ...]:
    when = image.imported_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    return image.name, f"sha256:{image.digest[:12]}…", render_size(image.size), when


def _document(image: Image) -> dict[str, object]:
    return {
        "name": image.name,
        "digest": f"sha256:{image.digest}",
        "pin": image.pin,
        "size": image.size,
        "n_entries": image.n_entries,
        "imported_at": image.imported_at.isoformat(),
        "source": image.source,
        "image_id": image.image_id,
        "env": image.env,
        "workdir": image.workdir,
        "user": image.user,
        "notes": list(image.notes),
    }
