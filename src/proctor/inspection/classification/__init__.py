"""What every turn of an agent was for: execution, verification, deliberation or exploration.

    labels      the four labels, and one label of one turn
    rules       the rule set that gives every turn its label, offline
    words       what a text says: its cues
    thoughts    what an agent thought, where that is kept apart
    actions     what a command or a tool call does: looks, writes, checks
    programs    what programs and tools are for, by their names
    structure   what follows what in a run, and how far a run is from good ones
    behaviour   the labels of many trials taken together
    agreement   how far two sets of labels agree
    compat      aec-bench's own turns, scores and summary, exactly, mistakes included

A label never moves a score. No model is asked here: `proctor.judge` does that.
"""
