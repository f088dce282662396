"""One trial for its pages: its files, the parts of its page, and how its score was derived.

    trial_view   everything known about a trial, sealed or in a job
    parts        what the page shows, apart from the score
    score        how the score follows from the reward files
    filetypes    the type of a file, from its contents
    labels       words for codes

Does not write, and does not run anything of a trial.
"""
