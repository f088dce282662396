"""Files of a container whose root lies on this machine, when it is gone."""

import asyncio
from pathlib import Path

import pytest

from proctor.environments.docker.merged import MergedFiles
from proctor.errors import ContainerDiedError


async def test_a_root_that_is_gone_fails_whoever_wants_files_and_keeps_nobody_waiting(
    tmp_path: Path,
) -> None:
    files = MergedFiles(str(tmp_path / "gone"))
    (tmp_path / "source").write_text("x")
    for deed in (files.take("/logs", tmp_path / "to"), files.put(tmp_path / "source", "/x")):
        with pytest.raises(
            (ContainerDiedError, PermissionError), match=r"No such file|not permitted"
        ):
            await asyncio.wait_for(deed, 60)
