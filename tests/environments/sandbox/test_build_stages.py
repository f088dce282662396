"""Stages of a Dockerfile are built in the sandbox, and copy files from each other and from images.

The files of another root are untrusted: no symlink in it leads to the host, devices are refused.
"""

import io
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots import layers, stages
from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.errors import ImageError
from tests.environments.sandbox.rootfs import PROGRAMS, make_rootfs, pack
from tests.environments.sandbox.sites import OnSite, Site
from tests.environments.sandboxes import several_users
from tests.task.trees import write

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def import_files(site: Site, name: str, files: dict[str, str], *, replace: bool = False) -> str:
    """Import an image with these files; return its pin."""
    tree = site.root / f"tree-{name}-{len(list(site.root.iterdir()))}"
    write(tree, {"bin/.keep": "", **files})
    return import_tree(name, tree, replace=replace)


def import_tree(name: str, tree: Path, *, replace: bool = False) -> str:
    return ImageStore().import_image(name, tree, Known({}), now=NOW, replace=replace).image.pin


def import_full(site: Site) -> None:
    """Import an image with a few more programs."""
    import_tree("full", make_rootfs(site.root / "full", (*PROGRAMS, "ln", "mkfifo", "chmod")))


@several_users
def test_files_are_copied_from_a_stage_and_from_an_image(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        import_full(site)
        pin = import_files(site, "tools", {"tool": "t", "lib/one.so": "1", "lib/two.so": "2"})
        root = await site.build(
            """\
FROM full AS build
WORKDIR /out/deep
RUN echo made > file && chown 1000:1000 file && ln -s file link && touch /out/own
FROM small
WORKDIR /app
COPY --from=build /out/deep .
COPY --from=build --chown=ada --chmod=600 /out/own hers
COPY --from=tools /tool /lib/*.so /opt/
COPY --from=tools /tool /opt/renamed
"""
        )
        listed = "stat -c '%n %a %U %F' file link hers /opt/* && cat file /opt/one.so /opt/renamed"
        assert (await site.said(root, listed)).split("\n") == [
            "file 644 ada regular file",
            "link 777 root symbolic link",
            "hers 600 ada regular empty file",
            "/opt/one.so 644 root regular file",
            "/opt/renamed 644 root regular file",
            "/opt/tool 644 root regular file",
            "/opt/two.so 644 root regular file",
            *("made", "1t"),
        ]
        images = [one.partition("@")[0] for one in root.pin.split(", ")]
        assert images == ["small:latest", "full:latest", "tools:latest"]
        assert root.pin.endswith(pin)

    on_site(act)


def test_modes_and_hard_links_are_kept(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        import_full(site)
        root = await site.build(
            """\
FROM full AS build
RUN mkdir /out && cp /bin/cat /out/one && chown 1000:7 /out/one && chmod 6755 /out/one
RUN ln /out/one /out/two && mkdir -m 2750 /out/deep && touch /out/deep/x
FROM small
COPY --from=build /out /out
"""
        )
        look = "stat -c '%n %a %u:%g %h' /out/* && /out/two /etc/hostname"
        assert (await site.said(root, look)).split("\n") == [
            *("/out/deep 2750 0:0 2", "/out/one 6755 1000:7 2", "/out/two 6755 1000:7 2"),
            "sandbox",
        ]

    on_site(act)


def test_from_scratch_is_empty_where_files_are_copied_into_it(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        root = await site.build(
            "FROM small AS all\nRUN echo x > /x && rm /bin/sleep\n"
            "FROM scratch\nCOPY --from=all / /\n"
        )
        assert await site.said(root, "cat /x; ls /bin/sleep 2>/dev/null || echo none") == "x\nnone"
        assert root.findings == () or [one.code for one in root.findings] == ["network-shared"]
        assert root.env == {"PATH": root.env["PATH"]}
        assert root.pin.split("@")[0] == "scratch, small:latest"

    on_site(act)


def test_a_stage_may_be_from_an_earlier_one_and_unused_ones_are_not_built(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        root = await site.build(
            "FROM small AS one\nENV A=1\nRUN echo a > /a\nFROM absent AS test\nRUN exit 1\n"
            "FROM one\nRUN cat /a > /b\n"
        )
        assert await site.said(root, "cat /b") == "a"
        assert (root.env["A"], root.workdir, site.n_spawned) == ("1", "/srv", 2)
        assert [one.code for one in root.findings if one.code != "network-shared"] == []

    on_site(act)


# Untrusted roots

HOSTILE = {
    "/bin -> /etc of the host": ("out/link", "/etc", "COPY --from=bad /out/link /got"),
    "links up and out": ("out/link", "../../../../../../etc", "COPY --from=bad /out/link /got"),
    "a link through a link": ("out/link", "/second", "COPY --from=bad /out/link/ /got"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_link_of_an_image_leads_into_that_image(on_site: OnSite, name: str) -> None:
    async def act(site: Site) -> None:
        path, to, copy = HOSTILE[name]
        tree = site.root / "bad"
        write(tree, {"bin/x": "", "etc/only-here": "image", "out/.keep": ""})
        (tree / path).symlink_to(to)
        (tree / "second").symlink_to("/etc")
        import_tree("bad", tree)
        root = await site.build(f"FROM small\n{copy}\n")
        assert await site.said(root, "cd /got && ls && cat only-here") == "only-here\nimage"

    on_site(act)


def test_links_below_a_directory_stay_links_and_wildcards_do_not_follow_them(
    on_site: OnSite,
) -> None:
    async def act(site: Site) -> None:
        tree = site.root / "bad"
        write(tree, {"bin/x": "", "d/file": "f"})
        (tree / "d" / "passwd").symlink_to("/etc/passwd")
        (tree / "d" / "up").symlink_to("../../../..")
        import_tree("bad", tree)
        root = await site.build(
            "FROM small\nCOPY --from=bad /d /got\nCOPY --from=bad /d/*/* /no/\n"
        )
        assert await site.said(root, "stat -c '%n %F' /got/*; ls /no 2>&1") == (
            "/got/file regular file\n/got/passwd symbolic link\n/got/up symbolic link\n"
            "ls: cannot access '/no': No such file or directory"
        )

    on_site(act)


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        ("/out /got", r"Dockerfile:4: COPY: /out/pipe: neither a file, a directory nor a link"),
        ("/out/pipe /got", r"Dockerfile:4: COPY: /out/pipe: neither a file"),
        ("/absent /got", r"Dockerfile:4: COPY: /absent: No such file or directory"),
        ("/loop /got", r"Dockerfile:4: COPY: .*/loop: Too many levels of symbolic links"),
        ("/dev/null /got", r"Dockerfile:4: COPY: /dev/null: /dev/null is not part of an image"),
        ("/self/environ /got", r"COPY: /self/environ: /proc/\d+/environ is not part of an image"),
    ],
)
def test_what_is_no_file_of_an_image_is_refused(on_site: OnSite, copy: str, said: str) -> None:
    async def act(site: Site) -> None:
        import_full(site)
        made = "mkdir /out && mkfifo /out/pipe && ln -s loop /loop && ln -s /proc/self /self"
        with pytest.raises(ImageError, match=said):
            await site.build(f"FROM full AS bad\nRUN {made}\nFROM small\nCOPY --from=bad {copy}\n")

    on_site(act)


# ADD of archives


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_add_unpacks_an_archive_and_copy_does_not(on_site: OnSite, mode: str) -> None:
    async def act(site: Site) -> None:
        write(site.root / "packed", {"deep/file": "f"})
        pack(site.root / "packed", site.task / "a.tar", mode)
        write(site.task, {"plain.txt": "p"})
        root = await site.build(
            "FROM small\nADD a.tar plain.txt /got/\nCOPY a.tar /kept\nADD --chown=ada a.tar /hers\n"
        )
        look = "cat /got/deep/file /got/plain.txt; stat -c '%F' /kept; stat -c %U /hers/deep/file"
        assert await site.said(root, look) == "fpregular file\nada"

    on_site(act)


def test_an_archive_that_leads_out_is_refused(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        with tarfile.open(site.task / "bad.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("../../out"), io.BytesIO())
        said = r"Dockerfile:2: ADD: bad\.tar: \.\./\.\./out: leads out of the archive"
        with pytest.raises(ImageError, match=said):
            await site.build("FROM small\nADD bad.tar /got/deep/\n")

    on_site(act)


@pytest.mark.parametrize("n_cut", [4, 60])
def test_an_archive_that_is_cut_short_is_refused(on_site: OnSite, n_cut: int) -> None:
    async def act(site: Site) -> None:
        write(site.root / "packed", {"file": "".join(map(chr, range(32, 999)))})
        pack(site.root / "packed", site.task / "a.tar", "w:gz")
        packed = (site.task / "a.tar").read_bytes()
        (site.task / "a.tar").write_bytes(packed[:-n_cut])
        with pytest.raises(
            ImageError, match=r"Dockerfile:2: ADD: a\.tar: .*(damaged|ended before)"
        ):
            await site.build("FROM small\nADD a.tar /got/\n")

    on_site(act)


def test_what_begins_like_an_archive_is_copied_by_add(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        (site.task / "disk.img").write_bytes(bytes(1024) + b"disk")
        (site.task / "not.gz").write_bytes(b"\x1f\x8bgzip")
        root = await site.build("FROM small\nADD disk.img not.gz /got/\n")
        look = "stat -c '%n %s' /got/disk.img /got/not.gz"
        assert await site.said(root, look) == "/got/disk.img 1028\n/got/not.gz 6"

    on_site(act)


# Layers


def test_dockerfiles_that_begin_alike_share_layers(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        first = await site.build("FROM small\nRUN echo a > /a\nRUN echo b > /b\n")
        second = await site.build("FROM small\nRUN echo a > /a\nRUN echo c > /c\n")
        assert site.n_spawned == 3
        assert first.parts[0][1][1:] == second.parts[0][1][1:]
        assert await site.said(second, "cat /a /c; ls /b 2>/dev/null") == "a\nc"

    on_site(act)


def test_a_build_that_fails_keeps_the_layers_before(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        with pytest.raises(RuntimeError, match="Build failed: RUN exit 3"):
            await site.build("FROM small\nRUN echo a > /a\nRUN exit 3\n")
        assert site.n_spawned == 2
        await site.build("FROM small\nRUN echo a > /a\nRUN true\n")
        assert site.n_spawned == 3

    on_site(act)


def test_another_image_under_the_same_name_is_another_layer(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        text = "FROM small\nCOPY --from=tools /tool /tool\n"
        import_files(site, "tools", {"tool": "old"})
        old = await site.build(text)
        import_files(site, "tools", {"tool": "new"}, replace=True)
        new = await site.build(text)
        assert old.pin != new.pin
        assert await site.said(new, "cat /tool") == "new"

    on_site(act)


def test_a_layer_that_is_built_again_has_new_ones_on_top(
    on_site: OnSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        text = "FROM small\nRUN cat /proc/uptime > /a\nRUN cat /a > /b\n"
        old = await site.build(text)
        monkeypatch.setattr(layers, "_MADE_BY_FORCE", set())
        new = await site.build(text, force=True)
        assert await site.said(new, "cat /a") == await site.said(new, "cat /b")
        assert await site.said(old, "cat /a") == await site.said(old, "cat /b")
        assert await site.said(old, "cat /a") != await site.said(new, "cat /a")

    on_site(act)


def test_a_long_dockerfile_stays_within_the_depth_of_an_overlay(
    on_site: OnSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        monkeypatch.setattr(stages, "_MOST_LOWERS", 5)
        steps = [f"COPY f{number} /f{number}\n" for number in range(8)]
        write(site.task, {f"f{number}": str(number) for number in range(8)})
        root = await site.build("FROM small\n" + "".join(steps))
        ((_, lowers),) = root.parts
        assert (len(lowers), site.n_spawned) == (5, 3)
        assert await site.said(root, "cat /f*") == "01234567"

    on_site(act)
