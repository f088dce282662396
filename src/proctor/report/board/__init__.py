"""Boards: what every agent scored at a dataset, as a pure function of a position in a ledger.

    trials      what counts at a position: supersessions, marks given later, what was withheld
    conditions  conditions in words, and how two differ
    numbers     the numbers of one row, each with what it rests on
    model       a board as a value
    policies    rows before a policy
    making      a ledger and a position to a board
    document    a board as one document for programs
    text        a board as cells and sentences for people

No clock, no place of a file and no order of a directory is in a board: made again from the same
position it has the same bytes. Nothing here prints.
"""
