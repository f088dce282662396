"""A monitor: follows ledgers that others write, and says what somebody should see.

    event      what can be seen, each kind by its name
    cursor     how far a ledger was read, kept between two looks
    reading    the lines since then, and the tree they make
    watching   one look at a ledger

A ledger is only read, plain files alone, and nothing is written below its directory. The last
checkpoint of a log is in the memory that witnesses use too.
"""
