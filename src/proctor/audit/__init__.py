"""Check whether a published result follows from its evidence.

    scoring      recompute the numbers of one or more jobs from the reward files
    mixing       which jobs may be scored together
    certificate  every operand of a score, so that anyone can recompute it
    explain      a certificate as text
    findings     the kinds of findings
    trials       compare reward files with trial results
    own_records  compare the records of trials with their other files
    shown        format claims and evidence
    identity     compare each trial with its directory, config and plan
    results      compare trial results with the job result
    duplicates   keys that occur twice in one JSON object
    traces       attempts with identical timestamps
    commands     attempts with identical commands, or those of the task's solution
    job          the complete audit of one job
    difference   compare two runs, task by task
    file_kind    recognise what a path contains
    checks/      check a single file or directory

Never writes into a job directory, and executes nothing of a job unless the user asked for it.
"""
