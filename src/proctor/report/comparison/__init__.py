"""Compares two runs: scores, their uncertainty, and behaviour.

    sides       trials of one agent and model, by task, and their behaviour
    likeness    differences in conditions, and whether they are allowed
    compared    the comparison as a value
    document    the comparison as a document

Sides under different conditions are refused with the differences, unless the caller allows them.
"""
