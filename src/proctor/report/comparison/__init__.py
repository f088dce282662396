"""Compares two runs: scores, their uncertainty, and behaviour.

    sides       trials of one agent and model, by task
    likeness    differences in conditions, and whether they are allowed
    measures    behaviour of the sides, and differences task by task
    compared    the comparison as a value
    document    the comparison as a document

Sides under different conditions are refused with the differences, unless the caller allows them.
"""
