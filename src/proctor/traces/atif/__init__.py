"""ATIF, the format of Harbor's agent/trajectory.json, and its conversion to entries and back.

    model     the document as values, field for field
    read      bytes to a document, strict or salvaging, with the coercions of harbor's validator
    rules     what the validator demands beyond types; a document as v1.7 and as bytes
    carry     one step as entries, and what either side has no field for
    convert   a document to entries, entries to a document, and what got lost

Images are not looked up on disk here. Continuations (`trajectory.cont-N.json`) are documents of
their own; `continued_trajectory_ref` is kept and not followed.
"""
