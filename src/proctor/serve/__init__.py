"""`proctor serve`: a ledger for many machines, behind HTTP.

    app.py         the requests, and who may make them
    tokens.py      tokens, hashed at rest
    intake.py      checks of what machines submit, made again before it is sealed
    writer.py      the one thread that appends: submissions that arrive together share a signature
    uploads.py     evidence, in bulk or in parts
    witnesses.py   cosignatures of checkpoints

One process owns the ledger; its directory is an ordinary ledger, which commands on the same machine
may read and write too.
"""
