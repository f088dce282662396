"""Trials that have traces to look at, by one set of rules for which trace is looked at.

    trial       a trial with what is known of it, and the traces it can be seen by
    candidates  which of its files those can be
    changes     what the agent changed, and what the clean room gave
    step_order  the order in which the steps of a trial were run
    opening     the first of them that has anything usable in it
    sealed      trials in a ledger
    unpacked    a sealed file as a temporary copy
    summaries   a trial's files to its summary and the cause of its failure

Trials in files and directories are found by `importers.traced_files`. Nothing here judges, counts
or prints; nothing is run, and nothing is written but temporary copies.
"""
