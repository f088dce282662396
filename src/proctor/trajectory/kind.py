"""What a trace can be read from. Apart from its readers, one of which is slow to load."""

from enum import StrEnum


class TraceKind(StrEnum):
    """What a trace can be read from, the preferred first."""

    TRAJECTORY = "trajectory"
    ATIF = "ATIF trajectory"
    CONVERSATION = "conversation"
