"""Contents of the pages of a ledger; the pages themselves are in `ledger`.

    log         the entries of a log, page by page, intact or damaged
    entries     summary of an entry, and the references from and to it
    verifying   a running verification

Does not write, except to repair an index.
"""
