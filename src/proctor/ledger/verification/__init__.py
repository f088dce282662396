"""Verifies a ledger completely and names its damage.

    whole        `proctor check` of a ledger
    verify       the verification
    steps        its steps
    damage       the kinds of damage
    scan         reads the segments of a log
    found        the log as it was read
    leaves       the leaf hashes of a whole log
    compare      compares signed entries with the lines that were read
    judge        decides what happened to a log that differs from what was signed
    keychain     the keys that a log names
    evidence     the artifacts that entries name, each checked once
    instep       compares the index with the log
    columns      … row by row

Nothing is written, except for an index that is rebuilt.
"""
