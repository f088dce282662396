"""A monitor that follows ledgers written by others, and reports suspicious changes.

    event      the kinds of events
    cursor     how far a ledger was read, stored between two checks
    reading    reads the lines since then, and computes their tree
    watching   one check of a ledger

Ledgers are only read, and nothing is written below their directories. The last checkpoint of a log
is stored in the memory that witnesses use too.
"""
