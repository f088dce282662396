"""Many trials as one job: planned, run at most so many at once, resumed where they were left.

    job        run_job and resume_job: the two pages on which a job's life can be read
    options, settings, watch    a job's options, its settings, and its observers
    config_file, mcp_file, secrets    what files say of it, and what they leave out
    classes    whether what it names by import path can be had
    request, planning, planned, preview    from a wish to a plan, or to a look at one
    tasks, datasets, registry, packages, git_tasks, cache    which tasks, from where
    slots, images, metrics, lock    attempts x tasks x agents, and what pins and counts them
    store    the job's own files, who may write them, and where paths start
    existing, foreign, resume    what is there already: kept, run or redone, and why
    running, local_executor    one slot with its retries; trials in this process
    retry, kept    when a trial is run again, what it left, and its findings
    progress, durable    the figures so far, and results that outlast a power cut
    flakes    how far further verifications agree, task by task
    sealing    trials into the ledger, as they end

Nothing here runs a command in an environment, and nothing prints.
"""
