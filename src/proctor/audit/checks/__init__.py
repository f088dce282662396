"""What can be said of one thing by itself, a module per kind. Finding out the kind is things.py's.

    checked   the answer: what it is, what is wrong with it, what could not be looked at
    scores    certificates and score records
    traces    trajectories, conversations, ATIF files
    records   trial records, and the files they name
    tasks     task directories and datasets of them

A check reads and says; it repairs nothing and runs nothing.
"""
