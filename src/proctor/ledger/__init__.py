"""The ledger: an append-only log that anyone can check.

    tree         RFC 6962: leaves to a root, inclusion and consistency
    note         C2SP signed notes, checkpoints, public keys
    signature    whether a key signed a checkpoint
    handover     the keys of a log, each named by the one before it
    keys         private keys, which one is used, and cosignatures
    row          one trial as every list, board, report and page sees it
    entry        the kinds of entries, and the lines they are
    admission    what an entry must be before anybody uses it
    counting     which trials count, and what they come to: the one rule
    run_plan     what is to be run, as a value and as sealed bytes
    sealed_plans   the plans in a ledger
    belonging    what belongs to an experiment, and which trials do not
    log          where the lines and the checkpoint are kept: LogStore, and FileLog
    artifacts    where evidence is kept by content: ArtifactStore, and FileArtifacts
    step_parts   some steps of a sealed trajectory, without unpacking all of it
    derived      where the indexes of a ledger lie, in the user's cache
    rows         the rows of the index that an entry gives
    index_file   the index's tables, and how its file is opened
    trial_index  what lists and look-ups need of an index: TrialIndex
    index        … and one in SQLite
    upkeep       the index brought up to the log
    lock         one writer at a time
    memory       checkpoints that a witness or a monitor has seen
    reader       what anything that looks at a ledger needs of it: LedgerReader
    ledger       a ledger that is open: where log, artifacts and index meet
    place        which ledger
    keeping      evidence opened where no link leads out, and put
    sealing      a record and its evidence become an entry
    trial_sealing   the trials of a job, each once
    submission   a trial's directory as something to be sealed
    query        which trials are sealed
    traced_trials   sealed trials with their traces, unpacked while they are read
    review       what is said of a sealed trial afterwards
    attestation  signed statements that name every entry of an experiment
    withhold     bytes taken out, their digests kept
    withheld     what was withheld, with or without naming a trial
    restore      … and brought back
    stats        counts and bytes
    supersession   which supersessions count
    api          all of it for programs
    verification/   all of a ledger recomputed, and its damage named
    watch/          a monitor that follows ledgers
    claims/         what a stranger can check without the ledger
    exchange/       sealed trials taken out, and brought into another ledger

Nothing here runs a trial or prints.
"""
