"""What a trial scored, and what many scores add up to. All score arithmetic is in this package.

    number      int and float kept apart as in harbor; their exact sum; their JSON text
    score       Scored and Unscored
    profile     named scoring rules: harbor-0.13.1, harbor-0.25
    read        parse reward.json and reward.txt, with harbor's rules and error messages
    coerce      convert odd reward.json values to numbers, as pydantic does
    steps       combine the steps of a trial into its rewards
    metric      the rewards of a group of trials; Mean, Max, Min, Sum over them
    script      custom metric scripts, run only on request
    passk       pass@k

Does not read job directories.
"""
