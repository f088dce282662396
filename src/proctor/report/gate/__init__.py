"""Gates: checks runs against limits, for CI.

    measured    a job or an experiment: its trials, denominators and damage
    numbers     the numbers of a group of trials, and of a whole run
    limits      the limits, and the ways to miss them
    judging     compares numbers with limits
    junit       the result as JUnit XML
    markdown    the result as Markdown for a CI summary

The mean is harbor's, computed by `reward`.
"""
