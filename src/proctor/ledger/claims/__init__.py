"""What can be checked without the ledger: proofs, claims, checkpoints.

    document     untrusted JSON documents, plain or compressed
    proof        proof files: an entry is in a ledger, a ledger only grew
    trials       an experiment's trials: counted, superseded, withheld
    operands     sealed trials as operands of a score
    claim        a score, its entries and their proof as one file
    trust        checks signatures against trusted keys
    checks       `proctor check` of checkpoints, proofs and claims

Nothing here appends to a ledger.
"""
