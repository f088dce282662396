"""Which ids an ordinary user may give to a sandbox."""

import os
import subprocess
import sys
from pathlib import Path

from proctor.environments.sandbox.subordinate import find_subordinate_ids


def test_subordinate_ids_are_those_in_both_files(tmp_path: Path) -> None:
    users, groups = tmp_path / "subuid", tmp_path / "subgid"
    users.write_text("somebody:1:2\n65534:100000:65536\nnobody:300000:65536\n")
    groups.write_text("nobody:300000:65536\n")
    assert find_subordinate_ids(users, tmp_path / "nowhere") == ()
    found = subprocess.run(
        [sys.executable, "-c", IDS, str(users), str(groups)],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    expected = "((1, 300000, 65536),)" if os.geteuid() == 0 else "()"
    assert found.stdout.strip() == expected, found.stderr


IDS = """
import os, pwd, shutil, sys
from pathlib import Path
from proctor.environments.sandbox.subordinate import find_subordinate_ids
users, groups = (Path(sys.argv[n]).read_text() for n in (1, 2))
Path.read_text = lambda self, encoding: {"subuid": users, "subgid": groups}[self.name]
shutil.which = lambda name: name
if os.geteuid() == 0:
    os.setuid(65534)
print(find_subordinate_ids(Path("subuid"), Path("subgid")))
"""
