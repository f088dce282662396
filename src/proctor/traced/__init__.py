"""Trials that have traces to look at, by one set of rules for which trace is looked at.

    trial      a trial with what is known of it, and the traces it can be seen by
    sealed     trials in a ledger
    summaries  a trial's files to its summary and the cause of its failure

Trials in files and directories are found by `importers.traced_files`. Nothing here judges, counts
or prints; nothing is run, and nothing is written but temporary copies.
"""
