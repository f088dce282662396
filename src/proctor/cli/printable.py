"""Escapes control characters: text from a job is untrusted, and a terminal would interpret them."""

from proctor.sentence import printable

__all__ = ["printable"]
