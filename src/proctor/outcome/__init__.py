"""What a finished job tells the world: the result line, reason codes, and scores by policy.

    reasons         the reason codes, which of them are worth a retry, and foreign text to codes
    line            a job's result.json to `BASE_BENCHMARK_RESULT={...}`
    consumer        stdout, exit code and time-out back to status, score and reason
    attempt         the trials of one task to the outcome of its attempt
    policy          many trials to one task score, many task scores to one job score
    concurrency     how many trials fit on a machine
    f64be           a score as its 16 hex digits
    canonical       JSON that has one spelling, so that it can be hashed
    scoring_policy  scoring policy v1, the document
    score_record    score record v1, made and checked

Nothing here runs a job, reads a directory or prints.
"""
