"""What an answer must be like."""

import hashlib
from pathlib import Path

DIGEST = "5f1d7a84c03be692"


def check(answer: str) -> bool:
    """Whether a file has the answer."""
    return hashlib.sha256(Path(answer).read_bytes()).hexdigest().startswith(DIGEST)
