"""Trials that have traces to look at, wherever they lie: a file, a directory, a job, a ledger.

    trial       a trial with what is known of it, and the traces it can be seen by
    candidates  which of its files those can be
    opening     the first of them that has anything usable in it
    files       trials in files and directories, none of them sealed
    sealed      trials in a ledger
    unpacked    a sealed file as a temporary copy

Nothing here judges, counts or prints; nothing is run, and nothing is written but temporary copies.
"""
