"""Trials that have traces to look at, wherever they lie: a file, a directory, a job, a ledger.

    trial    a trial with what is known of it, and the traces it can be seen by
    files    trials in files and directories, none of them sealed
    sealed   trials in a ledger
    entries  what a trace holds, whatever kind of file it is

Nothing here judges, counts or prints; nothing is run, and nothing is written but temporary copies.
"""
