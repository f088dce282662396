"""When a failed trial is run again: harbor's rule, and what an agent could force on purpose.

It moves no file and waits for nothing.
"""

from typing import Final

from proctor.harbor.configs import RetryConfig

ONLY_BY_NAME: Final = frozenset({"ToolsChangedError", "SandboxDiedError", "ContainerDiedError"})
"""Ends that an agent can bring about from inside, which would give it another attempt each time."""


def is_retried(exception_type: str, retry: RetryConfig, n_retried: int) -> bool:
    """Whether a trial that failed so, and was run again so often, is run once more.

    Names are compared whole. What is excluded stays excluded though it is included as well; an
    empty list of either kind is none. Those of ONLY_BY_NAME have to be included.
    """
    if n_retried >= retry.max_retries:
        return False
    if retry.exclude_exceptions and exception_type in retry.exclude_exceptions:
        return False
    if exception_type in ONLY_BY_NAME:
        return exception_type in (retry.include_exceptions or ())
    return not retry.include_exceptions or exception_type in retry.include_exceptions


def retry_delay(retry: RetryConfig, n_retried: int) -> float:
    """Seconds before it is run again, having been run again so often."""
    try:
        delay = retry.min_wait_sec * retry.wait_multiplier**n_retried
    except OverflowError:
        return retry.max_wait_sec
    return min(delay, retry.max_wait_sec)
