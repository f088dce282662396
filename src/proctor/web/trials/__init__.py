"""What the pages of one trial show, as values; the pages themselves are `trial` and `files`.

    known       all that is known of a trial, sealed or in a job
    evidence    its files: here, withheld or lost
    filetypes   what a file is, by its bytes
    score       how its score came to be
    phases      when each phase began, and how long it took
    spent       tokens and money, and the advisor's share of them
    changed     what the agent changed, and what the clean room gave
    outputs     what verifier and errors left, and what there is to see and hear
    status    reviews, findings that are open, what stands in for what
    remembered  what took long to find out, as long as its files are the same
    addresses   where its files are found
    words       codes in words

Nothing here writes, and nothing of a trial is run.
"""
