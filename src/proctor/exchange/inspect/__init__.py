"""Logs of Inspect, in both directions.

reading      log files, read by inspect_ai in another process
worker       the program of that process
sample       one sample as values: scores, tokens, times, its trace
trial        make a sealable trial of a sample
conversion   a sealed trial as a sample
exporting    a directory of logs
"""
