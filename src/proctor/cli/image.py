"""`proctor image`: manages root file systems for the sandbox."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option, print_json, print_line
from proctor.environments.sandbox.roots.image import Image, StoredImage
from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.environments.sandbox.roots.layers import LayerStore, StoredLayer
from proctor.environments.sandbox.roots.prune import (
    LIMIT,
    Pruned,
    measure_store,
    parse_size,
    prune_store,
    store_limit,
)
from proctor.environments.sandbox.roots.pull import Pulled, PullOptions, load_layers, pull_image
from proctor.environments.sandbox.roots.saved_image import parse_platform
from proctor.environments.sandbox.scratch import cache_directory
from proctor.errors import ImageError
from proctor.report.page.columns import draw_table
from proctor.sentence import count_of, reason_of, render_size

_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@click.group("image")
def command() -> None:
    """Pull, import, list and remove images for the sandbox, and layers of builds.

    Example: proctor image list
    """


@command.command("pull")
@click.argument("reference", metavar="REF")
@click.option(
    "--platform",
    metavar="OS/ARCH",
    help="Platform, such as linux/arm64.  [default: this machine's]",
)
@click.option("--as", "name", metavar="NAME", help="Name to store it under.  [default: REF]")
@click.option(
    "--offline",
    is_flag=True,
    help="Only check that the image is in the store; do not contact a registry.",
)
@json_option
def pull(
    reference: str, platform: str | None, name: str | None, offline: bool, as_json: bool
) -> int:
    """Pull an image from a registry, without Docker.

    REF is a name as in Docker: debian:12, registry.example.org/org/name:tag, or with a digest:
    debian@sha256:… Users and passwords come from ~/.docker/config.json and its credential helpers,
    mirrors from ~/.config/proctor/registries.toml. Layers are stored once and shared between
    images. If the tag has moved, the name is reassigned to the new image. An interrupted pull
    continues where it stopped.

    Example: proctor image pull debian:12
    """
    store = ImageStore()
    if offline:
        image = store.find(name or reference)
        if image is None:
            raise ImageError(f"{reference}: not in the image store, and --offline forbids a pull")
        if platform is not None and image.platform != str(parse_platform(platform)):
            raise ImageError(
                f"{reference}: in the image store for {image.platform or 'an unknown platform'}, "
                f"not for {platform}, and --offline forbids a pull"
            )
        return _print_pulled(Pulled(image, image, 0, 0), as_json=as_json)
    progress = make_progress()
    options = PullOptions(
        env=os.environ,
        now=datetime.now(UTC),
        platform=platform,
        name=name,
        show=lambda done, total: progress(f"{reference}, bytes", done, total),
    )
    return _print_pulled(pull_image(store, reference, options), as_json=as_json)


def _print_pulled(pulled: Pulled, *, as_json: bool) -> int:
    image, before = pulled.image, pulled.before
    if as_json:
        print_json(
            {
                "image": _document(image),
                "is_new": pulled.is_new,
                "replaced": before.pin if before and pulled.is_new else None,
                "n_layers_downloaded": pulled.n_layers,
                "n_bytes_downloaded": pulled.n_bytes,
                **_pruned_document(pulled.pruned),
            }
        )
        return 0
    if pulled.is_new:
        print_line(
            f"{image.name}: pulled, {count_of(len(image.layers), 'layer')}, "
            f"{render_size(image.size)}; {render_size(pulled.n_bytes)} downloaded"
        )
        if before is not None:
            print_line(f"  the name referred to {before.pin} before")
    else:
        print_line(f"{image.name}: nothing to do, this image is already in the store")
    _print_facts(image)
    if pulled.pruned.images or pulled.pruned.layers:
        print_line(f"  to stay within {LIMIT}: {_describe_pruned(pulled.pruned)}")
    return 0


def _print_facts(image: Image) -> None:
    print_line(f"  {image.pin}")
    if image.image_id:
        print_line(f"  image id {image.image_id}")
    for note in image.notes:
        print_line(f"  {note}")


def _show(store: ImageStore, name: str, *, as_json: bool) -> None:
    """Print an image: digests, settings, and the layers with their sizes."""
    image = store.find(name)
    if image is None:
        raise ImageError(f"{name}: no image of that name; see `proctor image list`")
    layers = load_layers(store, image)
    if as_json:
        sizes = [
            {"diff_id": f"sha256:{facts.diff_id}", "size": facts.size, "n_entries": facts.n_entries}
            for _, facts in layers
        ]
        print_json({"image": _document(image), "layers": sizes})
        return
    entries = count_of(image.n_entries, "entry", "entries")
    print_line(f"{image.name}: {render_size(image.size)}, {entries}, from {image.source}")
    _print_facts(image)
    if image.platform:
        print_line(f"  platform {image.platform}")
    print_line(f"  user {image.user}, working directory {image.workdir}")
    if image.entrypoint:
        print_line(f"  entrypoint {shlex.join(image.entrypoint)}")
    if image.healthcheck is not None:
        print_line(f"  healthcheck {shlex.join(image.healthcheck.test)}")
    for variable, value in image.env.items():
        print_line(f"  env {variable}={value}")
    for _, facts in layers:
        print_line(f"  layer sha256:{facts.diff_id[:12]}…  {render_size(facts.size)}")


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
    layout (a directory, or a tar archive of it). Its variables, working directory, user, ENTRYPOINT
    and HEALTHCHECK are imported too. If there are several images, NAME selects one by its tags. A
    root file system is a directory or a tar archive, as written by `docker export`, and has no such
    settings: pass those that matter as options. Archives are plain, or compressed with gzip, xz,
    bzip2 or zstd. The name can be used in FROM of a Dockerfile, as docker_image of a task, and with
    --base.

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
    _print_facts(image)
    return 0


@command.command("list")
@click.argument("name", required=False)
@json_option
def list_(name: str | None, as_json: bool) -> int:
    """List the images of the store and the layers built from Dockerfiles, with their sizes.

    With a NAME, shows that image: digests, settings, and its layers with their sizes.

    Example: proctor image list debian:12
    """
    store = ImageStore()
    if name is not None:
        _show(store, name, as_json=as_json)
        return 0
    limit = store_limit()
    images = store.list_images()
    with _opened_layers() as layer_store:
        layers, stored = layer_store.list_layers(), store.list_stored(images)
    by_digest = {one.digest: one for one in stored}
    counted = measure_store([one for one in stored if not one.is_kept], layers)
    if as_json:
        print_json(
            {
                "images": [_stored_document(image, by_digest[image.digest]) for image in images],
                "layers": [_layer_document(layer) for layer in layers],
                "n_bytes": measure_store(stored, layers),
                "n_bytes_counted": counted,
                "limit": limit,
            }
        )
        return 0
    if not images:
        print_line(
            "no images; `proctor image pull REF` or `proctor image import NAME (TAR|DIR)` adds one"
        )
    rows = (_row(image, by_digest[image.digest]) for image in images)
    _print_table(("name", "digest", "size", "from", "last used"), rows)
    if layers:
        size = render_size(sum(layer.size for layer in layers))
        print_line(f"{count_of(len(layers), 'layer')} of Dockerfiles, {size}:")
    _print_table(("layer", "base", "size", "last used"), map(_layer_row, layers))
    if images or layers:
        print_line(
            f"{render_size(measure_store(stored, layers))} on the disk; {render_size(counted)} "
            f"count towards {LIMIT}, {render_size(limit)}"
        )
    return 0


def _print_table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    # Names and digests are arguments of other commands, so they are never cut.
    lines = draw_table(heading, rows)
    for line in lines if len(lines) > 1 else ():
        print_line(line)


@command.command("prune")
@click.argument("names", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Remove everything that no run is using.")
@click.option(
    "--limit",
    metavar="SIZE",
    help="Keep at most this much, such as 20GB.  [default: PROCTOR_STORE_LIMIT, else 50GB]",
)
@json_option
def prune(names: tuple[str, ...], is_all: bool, limit: str | None, as_json: bool) -> int:
    """Remove pulled and built images and layers of Dockerfiles, the least recently used first.

    The next run that needs one pulls or builds it again. Images that a run is using and imported
    images are kept; imported images do not count towards the limit. Every pull and every build also
    prunes down to the limit.

    With NAMES, removes these images alone, imported ones too. The files of an image are deleted
    with its last name, and layers with the last image that has them. An image that a run is using
    is not removed.

    Example: proctor image prune --limit 20GB

    Example: proctor image prune debian:12
    """
    check_apart("is_all", "limit")
    if names:
        check_apart("names", "is_all")
        check_apart("names", "limit")
        return _remove(names, as_json=as_json)
    most = 0 if is_all else store_limit() if limit is None else parse_size(limit)
    images = ImageStore()
    with _opened_layers() as layers:
        pruned = prune_store(images, layers, most, waits=True)
        left, kept = layers.list_layers(), images.list_stored()
    if as_json:
        document = {
            "layers": [_layer_document(layer) for layer in left],
            "images": [_files_document(image) for image in kept],
        }
        print_json({**_pruned_document(pruned), **document})
        return 0
    print_line(_describe_pruned(pruned))
    for image in pruned.images:
        print_line(f"  {', '.join(image.names)}")
    used = sum(layer.is_used for layer in left) + sum(image.is_used for image in kept)
    print_line(
        f"{_count_both(len(kept), len(left))} left, {render_size(measure_store(kept, left))}; "
        f"{used} in use"
    )
    return 0


def _remove(names: Sequence[str], *, as_json: bool) -> int:
    store = ImageStore()
    removed = [store.remove(name) for name in names]
    if as_json:
        print_json(
            {
                "removed_images": [_document(each.image) for each in removed],
                "n_bytes_freed": sum(each.n_bytes for each in removed),
            }
        )
        return 0
    for each in removed:
        print_line(f"{each.image.name}: removed, {render_size(each.n_bytes)} freed")
    return 0


def _describe_pruned(pruned: Pruned) -> str:
    both = _count_both(len(pruned.images), len(pruned.layers))
    return f"{both} removed, {render_size(pruned.n_bytes)} freed"


def _count_both(n_images: int, n_layers: int) -> str:
    return f"{count_of(n_images, 'image')} and {count_of(n_layers, 'layer')}"


def _pruned_document(pruned: Pruned) -> dict[str, object]:
    return {
        "removed": [_layer_document(layer) for layer in pruned.layers],
        "removed_images": [_files_document(image) for image in pruned.images],
        "n_bytes_freed": pruned.n_bytes,
    }


@contextmanager
def _opened_layers() -> Iterator[LayerStore]:
    """The layers that were built from Dockerfiles."""
    directory = cache_directory() / "layers"
    try:
        yield LayerStore(directory)
    except OSError as error:
        raise ImageError(
            f"{error.filename or directory}: {reason_of(error)}; images and layers cannot be read "
            "or removed there"
        ) from error


def _layer_row(layer: StoredLayer) -> tuple[str, ...]:
    when = layer.used_at.strftime("%Y-%m-%d %H:%M")
    return layer.key[:12], layer.base.partition("@")[0], render_size(layer.size), when


def _layer_document(layer: StoredLayer) -> dict[str, object]:
    return {
        "key": layer.key,
        "base": layer.base,
        "steps": list(layer.steps),
        "size": layer.size,
        "used_at": layer.used_at.isoformat(),
        "is_used": layer.is_used,
    }


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


def _row(image: Image, stored: StoredImage) -> tuple[str, ...]:
    when = stored.used_at.strftime("%Y-%m-%d %H:%M")
    size = render_size(image.size)
    return image.name, f"sha256:{image.digest[:12]}…", size, image.origin, when


def _stored_document(image: Image, stored: StoredImage) -> dict[str, object]:
    return {
        **_document(image),
        "used_at": stored.used_at.isoformat(),
        "is_used": stored.is_used,
        "is_kept": stored.is_kept,
    }


def _files_document(stored: StoredImage) -> dict[str, object]:
    return {
        "digest": f"sha256:{stored.digest}",
        "names": list(stored.names),
        "size": stored.size,
        "used_at": stored.used_at.isoformat(),
        "is_used": stored.is_used,
        "is_kept": stored.is_kept,
    }


def _document(image: Image) -> dict[str, object]:
    return {
        "name": image.name,
        "digest": f"sha256:{image.digest}",
        "pin": image.pin,
        "size": image.size,
        "n_entries": image.n_entries,
        "imported_at": image.imported_at.isoformat(),
        "source": image.source,
        "origin": image.origin,
        "image_id": image.image_id,
        "env": image.env,
        "workdir": image.workdir,
        "user": image.user,
        "platform": image.platform,
        "n_layers": len(image.layers),
        "notes": list(image.notes),
    }
