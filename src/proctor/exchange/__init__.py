"""Runs of other systems made into records, and sealed trials in formats that others read.

Import:

    harbor_job       a harbor job, trial by trial
    harbor_trial     a harbor trial directory to a record
    trial_sources    everything that is known of one harbor trial, read once
    aec_bench        a tree of aec-bench's records
    traces           a directory of loose traces
    prime/           hosted samples of Prime's evaluations
    submission       what a user names to be sealed
    intake           seal many trials, name the refused ones, keep the counts adding up
    traced_files     trials with traces in files and directories that are not sealed

An importer has no clock and no randomness: the same bytes give the same record. What is read is
never changed, and nothing of it is run.

Export, each format loaded on use:

    copies           a bundle, harbor's jobs, a tree of aec-bench's records
    atif             a directory of ATIF documents
    otel             a file of OpenTelemetry spans
    otel_model       what OTLP JSON consists of, and which attribute carries which field
    otel_spans       a trial and its traces to spans
    eee              a directory of Every Eval Ever's aggregates and rows
    parquet          a table, one row per trial
    exporting        the selected trials as these read them, and the report of what was lost
    chats            a trace as turns of the model

An export changes no ledger and replaces no file.
"""
