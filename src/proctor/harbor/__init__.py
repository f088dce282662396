"""Harbor's job and trial directories as values, read and written. Nothing here is run.

    configs     config.json of a job and of a trial
    agents      the agents that harbor knows by name
    env         variables: templates, and what may be written down of them
    skills      skills that a job brings along
    lock        lock.json: what was planned
    trial_result   a trial's result.json
    evaluation, spending   what a record says of a trial's score and cost
    account     a trial's account of itself, for its record
    documents   the JSON files harbor leaves, as far as marking needs them
    trial       one trial: what counts, and the reward files it was read from
    job         one job directory: its trials, what is broken in it, what is missing
    published   a job's result.json as it was published
    order       the order in which harbor added the trials up
    declared    which metrics a job was told to compute
    stats       many trials to JobStats
    live        JobStats while trials come and go
    render      harbor's exact JSON text
    result      a whole result.json

Job directories come from strangers: nothing in them is executed, and no file in one can make a
reader hang or crash.
"""
