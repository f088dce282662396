"""Verifies a ledger completely: whether it is sound, and else the first entry that differs.

    whole        `proctor check` of a ledger
    verify       the verification
    steps        its checks of keys, entries, trials and evidence
    damage       the kinds of damage
    scan         reads the lines of a log
    leaves       the leaf hashes of a whole log
    judge        compares the log with what was signed
    keychain     the keys that a log names
    evidence     the artifacts that entries name, each checked once
    index_check  compares the index with the log

Nothing is written, except for an index that is rebuilt.
"""
