"""A model that labels turns, behind any OpenAI-compatible endpoint: a second tier to the rules.

    turns      turns as the model is shown them, within limits
    prompt     what it is asked, and in which form it answers
    answers    what it answered, taken with distrust
    kept       labels by content, on disk: nothing is paid for twice, and a kill loses nothing
    judging    batches, failures one by one, cost: loaded on use, because httpx is slow to load

What a trace says is data to the model and to us: it is sent as JSON strings, and of an answer only
labels of turns that were asked for are taken. A label never moves a score.
"""
