"""Plans that are sealed before a run, and how what was run departs from them.

    model        a plan as a value, and as the bytes that are sealed
    making       a job that could be run to a plan
    sealed       the plans in a ledger
    sittings     the trials of an experiment as a plan looks at them
    deviations   each way in which they depart from it

Nothing here runs a trial.
"""
