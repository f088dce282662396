"""Sealed trials taken out of a ledger, in the forms that others read.

    bundle      a ledger, or a part of it, in one file that proves itself
    aec_bench   a directory of records, as aec-bench keeps them
    atif        a directory of ATIF documents
    otel/       a file of OpenTelemetry spans
    eee/        a directory of Every Eval Ever's aggregates and rows
    parquet     a table, one row a trial

    chosen      what is to be taken out, and what was
    trials      a sealed trial as these read it
    chats       its trace as turns of the model
    fields      fields of nested JSON by their path
    report      what did not survive, written down in full
    placing     new files and directories, there whole or not at all

Every form has a module with one function, `export_trials`, and is loaded on use. Nothing here
changes a ledger, and nothing that is there already is replaced.
"""
