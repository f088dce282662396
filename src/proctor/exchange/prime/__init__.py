"""Hosted samples of a Prime evaluation, made into trials.

    client    the API: address, key, retries, an evaluation with its pages of samples
    listing   all samples of all pages, each once however pages shift; also from saved files
    sample    one sample of either shape, as values, with its messages and names
    trial     a sample to a record with its evidence

Only the client uses the network and waits; the rest is pure: the same sample gives the same record.
"""
