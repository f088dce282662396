"""Run recorded trials again, to see whether somebody else's score can be reproduced.

    sample      choose trials, by a seed
    recorded    a recorded trial, from any source
    from_job    trials of a job directory
    from_claim  trials of a claim, with the evidence of a ledger
    plan        the job that runs a trial again, or why it cannot be run
    observed    compare the outputs of commands then and now
    verdict     the result of a rerun
    rerunning   run the chosen trials, in order

Only `rerunning` runs anything, and only inside environments. Audited jobs and ledgers are only
read.
"""
