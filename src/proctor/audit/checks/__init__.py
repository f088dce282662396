"""Checks of single files and directories, one module per kind; `file_kind` recognises the kind.

    checked   the result of a check
    scores    certificates
    traces    trajectories, conversations, ATIF files
    records   trial records, and the files they name
    tasks     task directories and datasets

A check only reads and reports; it does not repair or run anything.
"""
