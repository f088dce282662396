"""Harbor's job and trial directories as values, read and written. Does not run anything.

    configs     config.json of a job and of a trial
    agents      the agents that harbor knows by name
    later       job config keys of later releases that proctor does not have
    env         environment variables: templates, and redaction
    skills      skills that a job provides
    lock        lock.json: what was planned
    trial_result   a trial's result.json
    record      builds records of harbor trials, run here or imported
    trial_cost  tokens and cost of a trial, from the agent's reports or its trace
    documents   readers of the JSON files that harbor writes
    trial       one trial: what counts, and the reward files it was read from
    job         one job directory: its trials in order, broken and missing ones
    declared    which metrics a job declares
    stats       aggregate trials to JobStats, and a job's result.json
    render      harbor's exact JSON text

Job directories are untrusted: nothing in them is executed, and no file in one can make a reader
hang or crash.
"""
