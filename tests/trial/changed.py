"""changes.jsonl and clean-room.json as a trial leaves them, for tests of what reads them."""

import json
from collections import Counter

from proctor.digest import sha256_hex

DIGEST = sha256_hex(b"")


def change(path: str, **more: object) -> dict[str, object]:
    """A line: a file that the agent made in its working directory."""
    line = {"path": path, "how": "created", "kind": "file", "mode": "0644", "size": 1234}
    return {**line, "sha256": DIGEST, **more}


def changes(*lines: dict[str, object]) -> bytes:
    """The file, with the header that fits its lines."""
    agents = [line for line in lines if line.get("when", "agent") == "agent"]
    header = {
        "format": "proctor-changes-1",
        "total": len(lines),
        "listed": len(lines),
        "is_complete": True,
        "places": Counter(str(line.get("place", "work")) for line in agents),
        "phases": Counter(str(line.get("when", "agent")) for line in lines),
    }
    return "".join(f"{json.dumps(line)}\n" for line in (header, *lines)).encode()


def verified(reward: object, *, is_same: bool = True, **more: object) -> dict[str, object]:
    """One verification."""
    rewards = {"reward": reward}
    result = json.dumps(rewards)
    return {"result": result, "is_same": is_same, "rewards": rewards, "seconds": 0.1, **more}


def room(verdict: str, **more: object) -> dict[str, object]:
    """clean-room.json as a value."""
    fields = {"reason": None, "step": None, "left_out": 4, "survivors": 0, "seconds": 0.31}
    verifications = {"first": verified(1.0), "clean": [verified(1.0)], "control": []}
    head = {"format": "proctor-clean-room-1", "verdict": verdict}
    return {**head, **fields, **verifications, **more}


def differing() -> bytes:
    """clean-room.json of a trial whose reward rests on changes to the system."""
    clean, control = verified(0.0, is_same=False, number=1), verified(1.0, number=2)
    return json.dumps(room("clean-room-differs", clean=[clean], control=[control])).encode()
