"""Harbor's job and trial directories as values, read and written. Nothing here is run.

    configs     config.json of a job and of a trial
    agents      the agents that harbor knows by name
    env         variables: templates, and what may be written down of them
    skills      skills that a job brings along
    lock        lock.json: what was planned
    trial_result   a trial's result.json
    record      the one builder of records, for trials that run here and imported ones
    documents   the JSON files harbor leaves, each with one reader
    trial       one trial: what counts, and the reward files it was read from
    job         one job directory: its trials in order, what is broken in it, what is missing
    declared    which metrics a job declares
    stats       many trials to JobStats, and a job's result.json
    render      harbor's exact JSON text

Job directories come from strangers: nothing in them is executed, and no file in one can make a
reader hang or crash.
"""
