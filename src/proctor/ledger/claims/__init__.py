"""What a stranger can check without the ledger: proofs, claims, cosigned checkpoints.

    document     JSON documents from strangers, plain or compressed
    multiproof   one Merkle proof for many entries
    proof        proofs as files: an entry is in it, it only grew
    trials     an experiment's trials: counted, superseded, withheld
    operands     sealed trials as operands of a score
    claim        a score, its entries and their proof as one file
    attested     … whether it holds all that an attestation counts
    claiming     a claim made from a ledger
    trust        public keys against a checkpoint's signatures
    witness      … only where it extends what was seen before
    checks       checkpoints, proofs and claims by themselves

Nothing here appends to a ledger.
"""
