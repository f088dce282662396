"""Does a run reach what was asked of it? The answer for machines, and the reasons for people.

    measured    a job or an experiment: its trials, its denominators, what is wrong with it
    numbers     the numbers of a group of trials, and those of a run as a whole
    limits      what is asked for, and the names of the ways to miss it
    judging     numbers against limits
    junit       the answer as JUnit XML
    markdown    the answer as a page for a CI's summary

The mean is harbor's, made by `reward`; nothing here prints or writes.
"""
