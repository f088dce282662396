"""Full-text search over everything in a ledger: which step of which trial contains this.

    row       a search result: one entry of a trace, or another text of a trial
    texts     all texts of a sealed trial that are indexed
    query     a query, parsed: an FTS5 expression, and conditions on trials
    index     search.sqlite: FTS5 over rows, and their texts for snippets; derived
    upkeep    updates the index from the log, also in the background, and checks it
    find      answers a query, with or without an index, and cuts the words around a match

The index is derived: if it is deleted, it is built again. Nothing here prints.
"""
