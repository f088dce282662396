"""Plans sealed before a run, and how the run deviates from them.

    making       makes a plan from a job configuration
    deviations   lists every deviation

The plan itself is `ledger.run_plan`.
"""
