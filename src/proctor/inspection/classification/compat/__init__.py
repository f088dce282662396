"""aec-bench's classification apart from its model: turns, answers, scores and summary, exactly.

    turns       the turns it makes of a trace, and the batches it asks its model about
    answers     how it reads its model's answer
    structure   matrices, ideal sequence, similarity, edit distance
    summary     what its report says of an experiment

Its mistakes are kept here, so that its numbers can be had: references are compared with themselves
and pooled over all tasks, rows of averaged matrices need not sum to 1, and what is not defined is
0. `proctor.inspection.classification.structure` has the same mended. Where it would crash, the
answer here is an error with a sentence, or nothing.
"""
