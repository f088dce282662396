"""Hosted samples of a Prime evaluation, made into trials.

    access        where the interface is, and the key for it
    client        one question to the interface: retries, time-outs, what a refusal means
    hosted        an evaluation and its pages of samples, asked for
    saved         the same from files that were saved before
    listing       all samples of all pages, each once however pages shift, and what is missing
    reading       JSON as Prime writes it
    evaluation    what is known of an evaluation
    sample        one sample of either shape, as values
    conversation  its messages as rows, the calls in them, and what was handed in
    naming        trial ids, and names of files that lead nowhere else
    trial         a sample to a record with its evidence

The client alone touches the network, and only it waits; all else is pure: the same sample gives the
same record.
"""
