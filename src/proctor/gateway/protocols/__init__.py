"""The protocols that the gateway understands, one module for each. No I/O.

Each module has `read_request` and `read_answer` for whole bodies, and `assemble`, which makes the
whole body from the events of a stream: so an answer is read the same way, streamed or not.

bodies              decodes JSON and events; notes what could not be understood
blocks              content of messages as turns; media as short markers
openai_chat         POST …/chat/completions
openai_responses    POST …/responses
anthropic           POST …/messages
gemini              POST …/models/MODEL:generateContent and :streamGenerateContent
"""
