"""The command line: one file per noun, argument parsing and printing, nothing else.

    main                           the command table, and the door that every error leaves by
    score, check, audit, outcome   the commands
    options                        options that go only together
    output                         lines, JSON, progress, and files that were asked for
    table                          tables for people
    stdout                         standard output, and what is done when it cannot be written
    printable                      text with its control characters spelled out

Nothing here works out a number.
"""
