"""All of a ledger recomputed, and its damage named.

    whole        a whole ledger by itself
    verify       all of a ledger recomputed, its damage named
    steps        the steps of that
    damage       the kinds of damage
    scan         what the segments of a log hold
    found        the log as it was found
    leaves       the leaf hashes of a whole log
    compare      signed entries against found lines
    judge        what happened to a log that is not what was signed
    keychain     the keys that a log names
    evidence     the artifacts that entries name, each checked once
    instep       the index against the log
    columns      … row by row

Nothing here writes, but for an index that is put right.
"""
