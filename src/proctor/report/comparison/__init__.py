"""Two runs side by side: who scores better, how sure that is, and how differently they went about.

    sides       what is compared: attempts of one agent and model, by task
    likeness    what differs besides who sat the tasks, and what to do about it
    measures    one side's behaviour, and the difference task by task
    compared    the comparison as a value
    document        the comparison as a document

Sides that are not alike are refused with what differs, unless whoever asks says what to do.
"""
