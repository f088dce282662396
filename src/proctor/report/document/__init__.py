"""A report about one or several runs.

    facts       the content of the report as a value
    document    the report as a document

The document only renders the facts; it computes nothing.
"""
