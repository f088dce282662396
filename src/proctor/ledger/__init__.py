"""The ledger: an append-only log of sealed trials that anyone can check.

    tree         RFC 6962 Merkle trees: roots, inclusion and consistency proofs
    note         C2SP signed notes, checkpoints, public keys
    signature    checks signatures, follows the keys of a log
    keys         private keys
    row          one trial as every list, board, report and page reads it
    entry        the kinds of entries, and their lines
    admission    the checks that an entry must pass before it is used
    counting     which trials count, and the numbers over them
    run_plan     plans as values and as sealed bytes
    belonging    what belongs to an experiment
    log          the store for lines and the checkpoint: LogStore, FileLog
    artifacts    the store for evidence: ArtifactStore, FileArtifacts
    step_parts   reads single steps of a sealed trajectory
    derived      where indexes are stored, in the user's cache
    trial_index  the interface of an index: TrialIndex
    index        the index in SQLite
    upkeep       updates the index from the log
    tiles        the tree in tiles, and proofs from them
    machines     machines that sign what they submit to a server
    lock         the write lock
    memory       checkpoints that served ledgers had when they were last read
    reader       the interface of a ledger for reading: LedgerReader
    ledger       an open ledger: combines log, artifacts and index
    place        which ledger is used
    as_found     a ledger as it was found, also a damaged one
    keeping      opens and stores evidence files
    sealing      makes entries from records and evidence
    trial_sealing   seals the trials of a job, each once
    submission   makes a submission from the directory of a trial
    query        sealed trials by filter or name
    sealed_evidence   opens the evidence files of sealed trials
    traced_trials   sealed trials with their traces
    review       entries about sealed trials: reviews, supersessions, notes, plans
    withhold     withholds bytes; their digests stay
    publishing   a ledger as static files, for buckets and web servers
    api          the ledger for programs
    verification/   verifies a ledger and names its damage
    claims/         proofs and claims that can be checked without the ledger
    exchange/       exports and imports of sealed trials

Does not run trials.
"""
