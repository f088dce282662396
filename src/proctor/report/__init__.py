"""Many trials to claims: what was scored, under which conditions, and how sure it is.

    in_jobs     attempts in plain harbor job directories, which need no ledger
    runs        a whole run: an experiment, or a job's directory
    groups      attempts by agent, model and settings
    scores      what attempts came to: means, pass rates, cost
    behaviour   how agents went about it, from their traces
    wording     what came of attempts, in a few words
    levels      the tone of integrity findings, by their level
    marks       attempts at a task as a row of marks
    comparison/ two runs side by side
    document/   one report about runs
    page/       documents as blocks, and their faces: text, Markdown, HTML, plots
    statistics/ intervals, paired comparison, spread, costs: from numbers to numbers
    gate/       does a run reach what was asked of it?
    case/       one trial as one page that checks itself
    policy/     what a submission must be, and whether it is
    board/      what every agent scored at a dataset, at a position of a ledger
    planned/    plans sealed before a run, and how the run departs from them

Numbers that count as scores are made by `reward`; nothing here prints or writes to a ledger.
"""
