"""Ledgers of other machines: a verified copy on this one, and what this one submits.

    client      the requests that a server answers
    bucket      published ledgers in buckets
    mirror      the copy: fetched, and compared with every checkpoint seen before
    artifacts   its evidence: fetched when it is read
    outbox      what this machine sends: evidence, then entries; what waits, and what was promised

Nothing that a server says is believed: see mirror.py.
"""
