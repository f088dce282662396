"""Decide when a failed trial is retried: harbor's rule, except for failures an agent can cause.

Does not move files or wait.
"""

from typing import Final

from proctor.harbor.configs import RetryConfig

ONLY_BY_NAME: Final = frozenset({"ToolsChangedError", "SandboxDiedError", "ContainerDiedError"})
"""Exceptions that an agent can cause from inside, gaining another attempt each time. They are
retried only if the config includes them by name.
"""


def is_retried(exception_type: str, retry: RetryConfig, n_retried: int) -> bool:
    """Whether a trial that failed this way, after `n_retried` retries, is retried.

    Names are compared exactly. Exclusion wins over inclusion; an empty list counts as none.
    Exceptions of ONLY_BY_NAME must be included explicitly.
    """
    if n_retried >= retry.max_retries:
        return False
    if retry.exclude_exceptions and exception_type in retry.exclude_exceptions:
        return False
    if exception_type in ONLY_BY_NAME:
        return exception_type in (retry.include_exceptions or ())
    return not retry.include_exceptions or exception_type in retry.include_exceptions


def retry_delay(retry: RetryConfig, n_retried: int) -> float:
    """Seconds to wait before the next retry, after `n_retried` retries."""
    try:
        delay = retry.min_wait_sec * retry.wait_multiplier**n_retried
    except OverflowError:
        return retry.max_wait_sec
    return min(delay, retry.max_wait_sec)
