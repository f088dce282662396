"""Logs of Inspect, the evaluation framework of the UK AI Security Institute, in and out.

    archive     members of a zip archive, read within limits
    log         a log file, .eval or .json: its header, and where its samples are
    sample      one sample: ids, scores, tokens, times, error and limit
    messages    the messages of a sample as entries of a trace
    trial       make a record of a sample, with its evidence
    conversion  a sealed trial as a sample
    exporting   sealed trials as .eval logs

Does not import inspect_ai; the tests compare with it.
"""
