#!/bin/sh
if jq -e '.answer == "answer-is-5f1d7a84c03be692"' /app/answer.json >/dev/null; then echo 1; else echo 0; fi \
    >/logs/verifier/reward.txt
