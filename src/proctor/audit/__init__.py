"""Does a result follow from its evidence?

    scoring      one job, or several as one: numbers recomputed from the reward files
    mixing       which jobs may be scored as one
    certificate  every operand of a score, so that anyone can add it up again
    explain      the same as text
    findings     what an audit finds
    trials       reward files against trial results
    shown        claims and evidence as text
    identity     is a trial what it says it is?
    results      trial results against the job result
    duplicates   keys that stand twice in one object
    traces       attempts at the very same times
    commands     attempts by equal commands, or by those of the task's solution
    job          the whole audit of one job
    difference   two runs, task by task
    task_scores  a job's scores by task, for score records
    file_kind       what kind of thing a path leads to
    checks/      what can be said of one thing by itself

Nothing here writes into a job directory, and nothing of a job is executed unless it was asked for.
"""
