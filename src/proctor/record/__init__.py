"""TrialRecord: what is kept of one trial, what it cost, and what its job reports.

    model         TrialRecord and its parts: the format on one page
    fields        the scalar types of the format, and the strictness that all its parts share
    cost          tokens and money: CostRecord, the source of an amount, sums with coverage
    prices        genai-prices offline: a model's name and its tokens to an amount
    rules         what a record must satisfy beyond its format; what `complete` promises
    evidence      whether the files that a record names exist, with the digests it gives
    document      bytes of unknown origin to a JSON document, and a document to a model
    read          bytes or a file to a record, strict or salvaging; a record to its bytes
    generation2   the two documents of the second generation, read into one record
    schema        the JSON Schema of the format
    ids           names that may become paths
    comparable    what decides whether two numbers may be compared; digests of settings
    reasons       the reason codes, which of them are worth a retry, and foreign text to codes
    outcome       a job's result.json to `BASE_BENCHMARK_RESULT={...}`, and back
    policy        many trials to one task score, many task scores to one job score
    score_record  score record v1 and scoring policy v1, made and checked

Nothing here runs a trial, seals a record or prints.
"""
