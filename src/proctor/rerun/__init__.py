"""Recorded trials run again: does a stranger's number come out once more?

    sample      which trials, by a seed
    recorded    a trial that is on record, whoever keeps it
    from_job    trials of a job directory
    from_claim  trials of a claim, with the evidence of a ledger
    plan        the job that runs a trial again, or why none can
    observed    what commands gave then and now
    verdict     what came of it
    rerunning       all of it, in order

Only `again` runs anything, and only inside environments. Nothing of what is audited is written to.
"""
