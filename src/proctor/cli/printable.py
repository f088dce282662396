"""Text from a job is hostile: control characters are shown, never sent to a terminal."""

from proctor.sentence import printable

__all__ = ["printable"]
