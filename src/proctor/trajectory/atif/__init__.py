"""ATIF, the format of Harbor's agent/trajectory.json, and the way to trajectory entries and back.

    model.py      the document as values, field for field
    read.py       bytes to a document, strict or salvaging
      document.py   the JSON itself: doubled keys, numbers and text that JSON cannot hold
      shape.py      JSON to the model, with the coercions that harbor's validator makes
    rules.py      what the validator demands beyond types
    version.py    a later document as one of the version we write
    render.py     a document to bytes
    convert.py    a document to entries, entries to a document, and what got lost
      entries.py      one ATIF step as entries
      in_metadata.py  what entries have no field for: it travels in `metadata`
      steps.py        entries as ATIF steps
      in_extra.py     what steps have no field for: it travels in `extra`

Images are not looked up on disk here: whether a named file is there is for whoever collects media.
Continuations (`trajectory.cont-N.json`) are documents of their own; `continued_trajectory_ref` is
kept and not followed.
"""
