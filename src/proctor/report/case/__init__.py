"""A case file: one sealed trial as one HTML page that checks itself, and can be checked without it.

    document    the data in the page, as it is written and read
    making      a sealed trial to a case: its entries, their proofs, its evidence
    opened      a case as it is looked at: the trial's entry as it is spelled, files unpacked
    spelled     JSON as it is spelled
    facts       what the page says, as labels and values
    steps       the first steps of a trace, for readers without script
    page        the page around the data, and what is in a page
    derivation  whether the reward follows from the reward file
    checking    everything that `proctor check` says of a case file
    script/     the script of the page; bytes, json, ed25519 and proofs are of use to any page
    case.css    its style

The page's script and `checking` check the same things and share nothing. Nothing here runs what is
in a page.
"""
