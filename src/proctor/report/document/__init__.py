"""One run, or several, as one document: what was run, what came of it, and what that rests on.

    facts       everything that the document says, as a value
    document        the same as a document

Nothing is worked out while it is told, and nothing is read.
"""
