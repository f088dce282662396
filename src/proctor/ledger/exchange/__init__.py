"""Exports sealed trials, and imports them into another ledger.

    bundle       writes a ledger, or a part of it, to one file
    take_in      imports a bundle
    harbor_jobs  exports trials as harbor jobs
    aec_tree     exports trials in the layout of aec-bench
    copying      writes files below a directory

Records are exported as they were sealed.
"""
