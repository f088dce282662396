"""Full-text search over everything in a ledger: which step of which trial contains this.

    row       a search result: one entry of a trace, or another text of a trial, with its tags
    tags      role, tool and exit code as words of the index, and words with signs such as C++
    texts     all texts of a sealed trial that are indexed
    pieces    the same, ready to be stored; made by a second process when there is much
    query     a query, parsed
    index     search.sqlite: FTS5 over rows, and their texts for snippets; derived
    upkeep    updates the index from the log
    background   starts the update in a process of its own
    check     compares the index with the log, for `ledger verify`
    scan      answers a query without an index
    find      answers a query: a page of hits, or trials with their counts
    snippet   the words around a match

The index is derived: if it is deleted, it is built again. Nothing here prints.
"""
