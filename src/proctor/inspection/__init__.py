"""What happened in a trial, seen from its traces. Pure: nothing is run, printed or kept.

    tool_errors  which results are errors, and by what sign
    told         what a result says in words where no exit code is on record
    divergence   two trajectories side by side: where they part, and who parted first
    actions      what an agent did and what it was answered, made comparable
    volatile     parts of an answer that differ from run to run and mean nothing
    alignment    two long sequences laid side by side, in bounded time

Nothing here moves a score.
"""
