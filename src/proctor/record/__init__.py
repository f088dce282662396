"""TrialRecord: what is kept of one trial, and what it cost.

    fields        the scalars of the format and the strictness that all its parts share
    cost          tokens and money: CostRecord, where an amount comes from, sums with coverage
    usage         one token algebra, and the conventions it is made from
    prices        genai-prices offline: a model's name and its tokens to an amount
    model         TrialRecord and its parts: the format on one page
    rules         what a record must hold to beyond its format
    completeness  what `complete` promises, and what is missing for it
    evidence      do the files that a record names exist, with the digests it gives?
    document      bytes from anywhere to a JSON document, hostile ones too
    refusal       what a model refused, as a sentence
    validate      a document to a model; what strict means
    additions     keys beyond the first generation, kept beside the record
    loaded        a record that was read, with all that its file held beyond it
    generation2   the two documents of the second generation
    generation2_read  such a pair as far as one record can hold it
    adaptation    the variation of a task, from a file of its own
    read          bytes or a file to a record, strict or salvaging
    write         a record to its bytes
    renamed       … under another id
    foreign       what aec-bench itself would refuse in a record of ours
    schema        the JSON Schema of the format
    ids           names that may become paths
    comparable    what decides whether two numbers may stand side by side
    pins          the digest of an agent's configuration

Nothing here runs a trial, seals a record or prints.
"""
