"""A static site of runs: the report, and a page for every trial. It needs no server and no script.

    writing     the directory: made whole or not at all
    pages       the pages, one after the other
    trial       one trial as a document
    outputs     the files of a trial that say how its score came to be
    changes     what the agent changed, and what the clean room gave
    steps       the trace of a trial, step by step, folded

The same runs give the same bytes. Links are relative; nothing names a place on this machine.
"""
