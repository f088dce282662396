"""Many trials to claims: what was scored, under which conditions, and how sure it is.

    attempt     one trial as reports count it
    sealed      attempts in a ledger, at a position of its log
    in_jobs     attempts in plain harbor job directories, which need no ledger
    statistics/   intervals, paired comparison, spread, costs: from numbers to numbers
    board/        what every agent scored at a dataset, at a position of a ledger
    planned/      plans sealed before a run, and how the run departs from them
    gate/         does a run reach what was asked of it?

Numbers that count as scores are made by `reward`; nothing here prints or writes to a ledger.
"""
