"""Sealed trials taken out of a ledger, and brought into another.

    bundle       a ledger, or a part of it, in one file
    unbundle     what is in such a file, checked
    checked      … as `proctor check` says it
    take_in      … and sealed here
    harbor_jobs  sealed trials as harbor keeps them
    aec_tree     sealed trials as aec-bench keeps them
    copying      ... file by file, below one directory

Nothing here makes a record.
"""
