"""The files of a reward_parse vector, on disk.

name -> {"parts": [{"b64", "times"}, …]} concatenated | {"dir": true} | {"symlink": target}
"""

import base64
from pathlib import Path
from typing import Any


def write_files(directory: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        path = directory / name
        match content:
            case {"dir": True}:
                path.mkdir()
            case {"symlink": str(target)}:
                path.symlink_to(target)
            case {"parts": list(parts)}:
                path.write_bytes(b"".join(map(_decode_part, parts)))
            case _:
                raise AssertionError(f"{name}: unknown content {content!r}")


def _decode_part(part: dict[str, Any]) -> bytes:
    return base64.b64decode(part["b64"]) * int(part["times"])


def encode_parts(pieces: list[bytes]) -> dict[str, Any]:
    return {"parts": [{"b64": base64.b64encode(piece).decode(), "times": 1} for piece in pieces]}
