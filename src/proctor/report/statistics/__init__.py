"""Statistics over rewards: pure functions on numbers.

    intervals    the interval of a share (Wilson); sums of values that must be finite
    bootstrap    the interval of a mean, resampling whole tasks
    student      … by Student's t, for few tasks; needs scipy, and is imported on use
    passk        pass@k and pass^k with their intervals
    variance     flaky tasks; variance within and between tasks
    paired       compares two sides task by task, with a p-value by sign flips
    efficiency   the cost of a success; the Pareto front of cost and score

Official scores are computed by `reward`. A missing value is never 0 here: the caller leaves it out
or decides explicitly. docs/reference/statistics.md explains each number.
"""
