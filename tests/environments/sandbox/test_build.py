"""A Dockerfile is built in a sandbox, and what it makes is kept by what decides it."""

import asyncio
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots import layers
from proctor.environments.sandbox.roots.instructions import DEFAULT_PATH
from proctor.traces.failures import find_message
from tests.become_user import ROOT
from tests.environments.sandbox.sites import OnSite, Site, found_beside_the_network
from tests.environments.sandboxes import several_users
from tests.task.trees import write


@several_users
def test_a_dockerfile_is_built_as_docker_would(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(
            site.task, {"src/a.txt": "a", "src/deep/b.txt": "b", "run.sh": "#!/bin/sh\necho ran\n"}
        )
        (site.task / "run.sh").chmod(0o755)
        root = await site.build(
            """\
FROM small
ENV GREETING="hello there" PATH=/opt/bin:$PATH
WORKDIR /app/deep
COPY src .
COPY run.sh /opt/bin/run
COPY --chown=ada --chmod=640 run.sh /app/hers
COPY <<EOF /app/inline
for $GREETING
EOF
RUN echo "$GREETING" > greeting && rm /bin/sleep
SHELL ["/bin/sh", "-e", "-c"]
RUN <<EOF
echo one > lines
echo two >> lines
EOF
USER ada
WORKDIR /home/ada/work
RUN id -un > me
"""
        )
        assert found_beside_the_network(root) == []
        assert (root.workdir, root.user) == ("/home/ada/work", "ada")
        assert root.env["PATH"] == f"/opt/bin:{DEFAULT_PATH}"
        assert root.env["FROM_IMAGE"] == "yes"
        assert root.pin.startswith("small:latest@sha256:")
        script = "cat me /app/deep/greeting /app/deep/lines /app/deep/deep/b.txt /app/inline; run"
        said = await site.said(root, script)
        assert said.split("\n") == ["ada", "hello there", "one", "two", "bfor hello there", "ran"]
        assert await site.said(root, "ls /bin/sleep 2>/dev/null || echo gone") == "gone"
        listed = "stat -c '%a %U:%G' /app/hers /app/deep /home/ada/work . /app"
        said = await site.said(root, listed)
        assert said.split("\n") == [
            *("640 ada:ada", "755 root:root", "755 ada:ada", "755 ada:ada", "755 root:root")
        ]

    on_site(act)


def test_it_is_built_once_by_content(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"a": "1"})
        text = "FROM small\nCOPY a /a\nRUN cat /a > /b\n"
        first = await site.build(text)
        again = await site.build(text)
        assert (first.parts, site.n_spawned) == (again.parts, 2)
        await site.build(f"# a comment\n{text}LABEL x=y\n")
        assert site.n_spawned == 2
        write(site.task, {"a": "2"})
        changed = await site.build(text)
        assert site.n_spawned == 4
        assert await site.said(changed, "cat /b") == "2"
        assert await site.said(first, "cat /b") == "1"

    on_site(act)


def test_many_trials_at_once_build_once(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"Dockerfile": "FROM small\nRUN echo built > /x\n"})
        roots = await asyncio.gather(*(site.build() for _ in range(8)))
        assert site.n_spawned == 1
        assert len({root.parts for root in roots}) == 1

    on_site(act)


def test_two_processes_at_once_build_once(on_site: OnSite, tmp_path: Path) -> None:
    """The second waits at the lock file of the first, and finds what it made."""
    script = """
import asyncio, sys
from pathlib import Path
from tests.environments.sandbox.sites import site_at
async def main():
    async with site_at(Path(sys.argv[1])) as site:
        await site.build()
        print(site.n_spawned)
asyncio.run(main())
"""
    write(tmp_path / "environment", {"Dockerfile": "FROM small\nRUN echo built > /x\n"})
    command = [sys.executable, "-c", script, str(tmp_path)]
    here = {"cwd": ROOT, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, **here) for _ in range(2)]  # type: ignore[call-overload]
    counts = [int(child.communicate(timeout=120)[0]) for child in children]
    assert sorted(counts) == [0, 1]


def test_a_forced_build_makes_a_new_generation_once(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        # Not there when the process is new: what the process itself made is fresh enough.
        text = "FROM small\nRUN cat /proc/uptime > /when\n"
        first = await site.build(text)
        when = await site.said(first, "cat /when")
        forget_what_was_made()
        forced = await asyncio.gather(*(site.build(text, force=True) for _ in range(3)))
        assert site.n_spawned == 2
        assert await site.said(forced[0], "cat /when") != when
        assert await site.said(first, "cat /when") == when
        assert (await site.build(text)).parts == forced[0].parts

    on_site(act)


def forget_what_was_made() -> None:
    """As a new process would be."""
    layers._MADE_BY_FORCE.clear()


def test_a_command_that_fails_says_which_and_what_it_printed(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        with pytest.raises(RuntimeError) as caught:
            await site.build(
                "FROM small\nRUN printf '\\033[31mabout-to-fail\\033[0m\\n' && exit 7\n"
            )
        message = "Build failed: RUN printf '\\033[31mabout-to-fail\\033[0m\\n' && exit 7\n"
        message += "about-to-fail\n"
        assert str(caught.value) == message
        (note,) = caught.value.__notes__
        place, _, path = note.partition("; the log of the build is ")
        assert place == f"{site.task}/Dockerfile:2: the command ended with exit code 7"
        assert Path(path).read_text().splitlines()[-1] == "\x1b[31mabout-to-fail\x1b[0m"
        assert site.layers == []

    on_site(act)


def test_of_long_output_the_last_lines_are_told(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        loop = "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; exit 1"
        with pytest.raises(RuntimeError) as caught:
            await site.build(f"FROM small\nRUN {loop}\n")
        lines = str(caught.value).splitlines()
        assert len(lines) == 401
        assert lines[-1] == "line 499"

    on_site(act)


def test_the_log_of_a_build_is_kept_with_its_layer(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"a": "1"})
        await site.build("FROM small\nCOPY a /a\nRUN echo printed; echo too >&2\n")
        logs = (site.root / "cache/layers").glob("*/build.log")
        where = f"{site.task}/Dockerfile"
        assert sorted(log.read_text() for log in logs) == [
            f"{where}:0: WORKDIR /srv\n{where}:2: COPY a /a\n",
            f"{where}:3: RUN echo printed; echo too >&2\nprinted\ntoo\n",
        ]

    on_site(act)


def test_the_line_that_says_most_is_found_in_the_message_of_a_failure(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        script = "echo Reading lists; echo 'E: Unable to locate package nope'; echo done; exit 100"
        with pytest.raises(RuntimeError) as caught:
            await site.build(f"FROM small\nRUN {script}\n")
        assert "E: Unable to locate package nope" in find_message(str(caught.value))

    on_site(act)


def test_a_build_that_is_cancelled_leaves_nothing_and_the_next_one_works(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"Dockerfile": "FROM small\nRUN echo x > /x && sleep 600\n"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await site.build()
        assert site.layers == []
        root = await site.build("FROM small\nRUN echo x > /x\n")
        assert await site.said(root, "cat /x") == "x"

    on_site(act)


def test_who_waits_for_a_build_that_fails_builds_it_themselves(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"Dockerfile": "FROM small\nRUN exit 3\n"})
        results = await asyncio.gather(*(site.build() for _ in range(2)), return_exceptions=True)
        assert [type(result) for result in results] == [RuntimeError, RuntimeError]
        assert site.n_spawned == 2

    on_site(act)


def test_what_a_killed_build_left_is_removed_by_the_next(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        text = "FROM small\nRUN echo x > /x\n"
        await site.build(text)
        (layer,) = site.layers
        left = layer.parent / "building-dead"
        write(left, {"parts/0/upper/x": "x"})
        forget_what_was_made()
        await site.build(text, force=True)
        assert not left.exists()

    on_site(act)


def test_layers_are_closed_to_others(on_site: OnSite, tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        await site.build("FROM small\nRUN touch /x\n")

    on_site(act)
    assert stat.S_IMODE((tmp_path / "cache/layers").stat().st_mode) == 0o700


def test_what_killed_builds_left_is_reaped(on_site: OnSite, tmp_path: Path) -> None:
    """A generation that is used stays, also when it is not the current one any more."""

    async def act(site: Site) -> None:
        text = "FROM small\nRUN echo x > /x\n"
        await site.build(text)
        (layer,) = site.layers
        home, store = layer.parent, layers.LayerStore(layer.parent.parent)
        write(home, {"building-dead/parts/0/upper/x": "x", "0/layer.json": "{}"})
        forget_what_was_made()
        left = [home / "building-dead", home / "0"]
        assert store.reap(dry_run=True) == left
        async with store.locked(home.name):
            assert store.reap() == []
        write(home, {"building-dead/parts/0/upper/x": "x", "0/layer.json": "{}"})
        assert store.reap() == left
        await site.build(text, force=True)
        assert store.reap() == []
        assert [path.name for path in site.layers] == ["1", "2"]

    on_site(act)
