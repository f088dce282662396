"""What can be said of many rewards, and how sure it is: pure functions, from numbers to numbers.

    intervals    the interval of a share (Wilson)
    sums         sums of values that must be finite
    resampling   sums over tasks drawn with replacement, thousands at once
    bootstrap    the interval of a mean, tasks drawn as a whole
    student      … by Student's t, for few tasks; needs scipy, and is loaded on use
    passk        pass@k and pass^k with their intervals
    variance     which tasks are flaky; spread within and between tasks
    signs        how often chance alone would make such a difference
    paired       two sides, task by task
    efficiency   what a success costs; who is beaten by nobody on cost and score

Nothing here makes an official number: those are `reward`'s. A value that is missing is never 0:
whoever calls leaves it out or decides aloud. docs/statistics.md says what each number means.
"""
