"""Case files: one sealed trial as an HTML page that checks itself, and can be checked without it.

    document    the data in the page
    making      makes a case from a sealed trial: its entries, their proofs, its evidence
    opened      a parsed case, with its files unpacked
    spelled     JSON values that keep their original bytes
    facts       what the page shows, as labels and values
    steps       the first steps of a trace, for readers without JavaScript
    page        renders and parses the page
    derivation  checks that the reward follows from the reward file
    checking    `proctor check` of a case file
    script/     the script of the page; bytes, json, ed25519 and proofs can be reused by any page
    case.css    its style

The page's script and `checking` make the same checks, but share no code. Nothing in a page is
executed.
"""
