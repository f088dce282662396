"""Contents of the pages of one trial; the pages themselves are `trial` and `files`.

    known       everything known about a trial, sealed or in a job
    evidence    its files: present, withheld or lost
    filetypes   type of a file, by its contents
    score       how its score was derived
    phases      when each phase began, and how long it took
    spent       tokens and cost, and the advisor's share of them
    changed     the agent's changes, and the clean-room result
    outputs     output of the verifier, errors, media
    status      reviews, open findings, replacements
    remembered  cache of values that are slow to compute
    addresses   addresses of its files
    words       labels for codes

Does not write, and does not run anything of a trial.
"""
