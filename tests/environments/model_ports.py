"""What programs inside environments reach of a gateway on the host, for tests."""

from proctor.trial.environment import Environment
from tests.environments.sandboxes import said

ASK = """
ask() {
    exec 3<>/dev/tcp/$1/$2 || return
    printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3
    while read -r line <&3; do :; done
    echo "$line"
    exec 3>&-
}
"""
"""A shell's way to send a request: every image of the tests has bash."""


async def answer_at(place: Environment, port: int, host: str = "127.0.0.1") -> str:
    """The last line of what a port answers from inside; empty if nothing does."""
    return await said(place, f"{ASK} ask {host} {port} 2>/dev/null")
