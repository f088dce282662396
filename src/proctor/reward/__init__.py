"""What a trial scored, and what many scores make: all score arithmetic of proctor lives here.

    number      int and float as harbor keeps them apart; their exact sum; their JSON text
    score       Scored and Unscored
    profile     named scoring rules: harbor-0.13.1, harbor-0.25
    read        reward.json and reward.txt to rewards, with harbor's acceptance and messages
    coerce      odd reward.json values to numbers, as pydantic does it
    column      the rewards of many trials, side by side
    steps       the steps of one trial to its rewards
    metric      Mean, Max, Min, Sum over the trials of a group
    script      custom metric scripts, run only when asked to
    passk       pass@k

Nothing here knows about job directories.
"""
