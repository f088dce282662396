"""Boards: the scores of all agents on a dataset, at a position of a ledger.

    trials      the trials of a board: supersessions, rescores, withholdings
    numbers     the numbers of one row
    model       a board as a value; conditions in words
    policies    checks the rows against a policy
    making      makes a board
    document    a board as JSON
    text        a board as text

A board depends only on the position: made again, it has the same bytes. It contains no times, paths
or directory order.
"""
