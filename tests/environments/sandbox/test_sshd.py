"""Debian's sshd inside: it confines itself by chroot, and PAM writes the user of each login."""

import os
import shutil
from pathlib import Path

import pytest

from proctor.environments.sandbox.box import Box
from tests.environments.sandbox.boxes import said, shell, use

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has no user sshd"),
    pytest.mark.skipif(
        shutil.which("sshd", path="/usr/sbin") is None or not Path("/etc/pam.d/sshd").exists(),
        reason="openssh-server is not installed: `make test` does that, as root",
    ),
]

SET_UP = """
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
echo 'sshd:x:120:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd
printf 'root:*:19000:0:99999:7:::\\nguest:*:19000:0:99999:7:::\\n' > /etc/shadow
mkdir -p /run/sshd /var/log /etc/ssh /root/.ssh
chmod 700 /root/.ssh
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
mkdir -p /home/guest/.ssh
cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
cp /root/.ssh/id_ed25519.pub /home/guest/.ssh/authorized_keys
chown -R guest:guest /home/guest
printf 'UsePAM yes\\nPermitRootLogin prohibit-password\\nStrictModes no\\n' > /etc/ssh/sshd_config
/usr/sbin/sshd -p 2222 -E /tmp/sshd.log
"""
LOGIN = (
    "ssh -p 2222 -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
    "{user}@127.0.0.1 'id -un; cat /proc/self/loginuid' 2>/dev/null"
)


@pytest.mark.parametrize("ids", ["own", "the host's"])
def test_a_key_opens_a_session_that_runs_a_command(tmp_path: Path, ids: str) -> None:
    async def run(box: Box) -> tuple[list[str], list[str], str]:
        for name in ("pam.d", "security"):
            await box.put(Path("/etc", name), f"/etc/{name}")
        ready = await shell(box, SET_UP)
        assert ready.return_code == 0, ready.output.decode()
        root = await said(box, LOGIN.format(user="root"))
        guest = await said(box, LOGIN.format(user="guest"))
        return root.split(), guest.split(), await said(box, "cat /tmp/sshd.log")

    changes = {} if ids == "own" else {"first_id": 0}
    root, guest, log = use(tmp_path, run, **changes)
    assert (root[:1], guest[:1]) == (["root"], ["guest"]), log
    if ids == "the host's" and root[1:]:
        # In a user namespace the kernel does not let it be set, and PAM goes on.
        assert (root[1:], guest[1:]) == (["0"], ["1000"]), log
