"""The centre of measurements: which tasks there are, when each is made, who makes it, and whether
what comes back may be believed.

    definition   a task as people write it, checked against tools and agents (pure)
    recurring    a schedule that repeats for ever, as instants (pure)
    parts        what each agent has to do in a run (pure)
    verdict      what a result may say (pure)
    run          one run, and what becomes of it: values
    book         all tasks and their schedule, changed without breaking what is promised
    agenda       from the schedule to runs
    demand       one run more: where it has room, and who moves for it
    diary        the runs of now, in memory and in the store alike
    roll         which agents there are, and how they are
    store        what outlives the process
    views        what is shown to people and programs
    centre       all of it together, and the one place that changes anything
"""
