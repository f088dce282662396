"""Text over everything in a ledger: which step of which trial says this.

    row       what is found: one entry of a trace, or another text of a trial, with its marks
    tags      role, tool and exit code as words of the index, and words with signs such as C++
    texts     all that a sealed trial is found by
    pieces    the same, ready to be stored; another process helps where there is much
    query     what somebody typed, parsed
    index     search.sqlite: FTS5 over rows, and their texts for snippets; derived
    upkeep    the index brought up to the log
    check     the index held against the log, for `ledger verify`
    scan      a query answered without an index, by looking at rows as they come
    find      a query answered: a page of hits, counted, or trials with their counts
    snippet   the words around a match

The index is derived: delete it and it is made again. Nothing here prints, and nothing is judged.
"""
