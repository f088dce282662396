"""Made-up runs to look at: tasks, job directories and a ledger, the same bytes every time.

    catalogue   the tasks, agents, models and experiments, all of them invented
    trial       one made-up trial, as the files that a trial leaves
    making      all of them as jobs, sealed into a ledger

Nothing is run here. Only the events are invented: results, records and entries are made by the
same functions as those of real runs.
"""
