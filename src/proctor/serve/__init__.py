"""`proctor serve`: a ledger for many machines, behind HTTP.

    serving       opens the ledger, listens, and answers until interrupted
    app           the requests, and who may make them
    audit         who wrote what, and who was refused
    tokens        tokens, hashed at rest
    intake        checks of what machines submit, made again before it is sealed
    writer        the one thread that appends: submissions that arrive together share a signature
    uploads       evidence, in bulk or in parts

One process owns the ledger; its directory is an ordinary ledger, which commands on the same machine
may read and write too.
"""
