"""Sealed trials taken out of a ledger, in the forms that others read.

    chosen      what is to be taken out, and what was
    bundle      a ledger, or a part of it, in one file that proves itself
    aec_bench   a directory of records, as aec-bench keeps them
    parquet     a table, one row a trial

Every form has a module of its own with one function, `export_trials`, and is loaded on use. Nothing
here changes a ledger, and nothing that is there already is replaced.
"""
