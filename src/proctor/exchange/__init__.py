"""Importers of other systems' runs, and exporters of sealed trials to other formats.

Import:

    harbor_job       a harbor job, trial by trial
    harbor_trial     make a record of a harbor trial directory
    trial_sources    read everything about one harbor trial, once
    aec_bench        a directory tree of aec-bench's records
    traces           a directory of loose traces
    prime/           hosted samples of Prime's evaluations
    inspect/         samples of Inspect's logs, and sealed trials as such logs
    submission       a record file or trial directory given by the user
    intake           seal many trials, report refusals, and keep the counts consistent
    traced_files     unsealed trials with traces in files and directories

An importer uses no clock and no randomness: the same bytes give the same record. Inputs are never
changed, and nothing in them is run.

Export, each format loaded on use:

    copies           a bundle, harbor's jobs, a directory tree of aec-bench's records
    atif             a directory of ATIF documents
    parquet          a table, one row per trial
    exporting        read the selected trials, and report what was lost

An export does not change the ledger and does not replace files.
"""
