"""Gates: checks runs against limits, for CI.

runs      a job or an experiment: the trials that count, and damage
judging   limits, numbers, and the conditions that are met or missed
output    the verdict as text, JSON, Markdown and JUnit XML
"""
