"""When a failed trial is run again: harbor's rule. It moves no file and waits for nothing."""

from proctor.harbor.configs import RetryConfig


def is_retried(exception_type: str, retry: RetryConfig, n_retried: int) -> bool:
    """Whether a trial that failed so, and was run again so often, is run once more.

    Names are compared whole. What is excluded stays excluded though it is included as well; an
    empty list of either kind is none.
    """
    if n_retried >= retry.max_retries:
        return False
    if retry.exclude_exceptions and exception_type in retry.exclude_exceptions:
        return False
    return not retry.include_exceptions or exception_type in retry.include_exceptions


def retry_delay(retry: RetryConfig, n_retried: int) -> float:
    """Seconds before it is run again, having been run again so often."""
    try:
        delay = retry.min_wait_sec * retry.wait_multiplier**n_retried
    except OverflowError:
        return retry.max_wait_sec
    return min(delay, retry.max_wait_sec)
