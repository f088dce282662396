"""Ledgers of other machines: a verified copy on this one, and what this one submits.

client.py     the requests that a server answers
bucket.py     published ledgers in buckets
mirror.py     the copy: fetched, and compared with every checkpoint seen before
spool.py      what waits for a server that cannot be reached
"""
