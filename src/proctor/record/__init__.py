"""TrialRecord: what is kept of one trial, what it cost, and what its job reports.

    model         TrialRecord and its parts
    fields        the scalar types of the format, and the strictness that all parts share
    cost          tokens and money: CostRecord, the source of an amount, sums, what endpoints report
    prices        estimate a cost with genai-prices, offline
    rules         rules beyond the format, and what `complete` requires
    evidence      whether the files that a record names exist, with the recorded digests
    document      parse untrusted bytes to a JSON document, and a document to a model
    read          read a record from bytes or a file, strictly or leniently; write it
    generation2   read the two documents of the second generation into one record
    schema        the JSON Schema of the format
    ids           names that may become paths
    comparable    whether two numbers may be compared; digests of settings
    reasons       the reason codes, which of them are retried, and text mapped to codes
    outcome       convert a job's result.json to `BASE_BENCHMARK_RESULT={...}`, and back

Does not run trials, seal records or print.
"""
