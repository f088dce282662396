"""What `proctor show` shows.

options      the options of `show`, and which steps they select
trace        a trace, and the traces of a trial
text         renders traces for people
trial_text   renders the record and the failures of a trial
files        a record, or the directory of a trial
sealed       a sealed trial, or another entry of a ledger
job          the trials of a job
changes      what an agent changed
follow       a trace that is being written
"""
