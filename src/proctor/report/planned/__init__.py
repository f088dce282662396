"""Plans that are sealed before a run, and how what was run departs from them.

    making       a job that could be run to a plan
    deviations   each way in which they depart from it

The plan itself is `ledger.run_plan`. Nothing here runs a trial.
"""
