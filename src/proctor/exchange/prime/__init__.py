"""Import hosted samples of a Prime evaluation.

    client    the API: address, key, retries, an evaluation with its pages of samples
    listing   all samples of all pages, each once even if pages shift; also from saved files
    sample    one sample, of either format, as values, with its messages and names
    trial     make a record of a sample, with its evidence

Only the client uses the network and waits; the rest is deterministic.
"""
