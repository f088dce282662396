"""What the pages of a ledger show, as values; the pages themselves are in `ledger`.

    log         the entries of a log, page by page, sound or damaged
    entries     what one entry says, what it refers to, what was said of it
    verifying   a verification while it runs, one at a time, ended when nobody waits for it

Nothing here writes, but for an index that is put right.
"""
