"""Trials that have traces to look at, wherever they lie: a file, a directory, a job, a ledger.

    trial      a trial with what is known of it, and the traces it can be seen by
    files      trials in files and directories, none of them sealed
    sealed     trials in a ledger
    summaries  a trial's files to its summary and the cause of its failure

Nothing here judges, counts or prints; nothing is run, and nothing is written but temporary copies.
"""
