"""Sealed trials as Every Eval Ever has them, schema 0.3.0: an aggregate, and a row a trial.

    export     the directory: data/COLLECTION/DEVELOPER/MODEL/UUID.json and UUID_samples.jsonl
    groups     which trials make one aggregate, and the aggregate
    rows       one trial as a row
    messages   its trace as messages
    back       a row to what a record and a trace say: what the loss report is made by

The schema demands a number of every row, and not scored is not 0: such a trial has no row. It is
counted in the aggregate, which is the mean of those that have a score.
"""
