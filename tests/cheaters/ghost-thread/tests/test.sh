#!/bin/sh
# Works on a copy, after a moment for what the agent started to settle.
work=$(mktemp -d)
cp /app/answer.txt "$work" 2>/dev/null
sleep 1
if grep -qx answer-is-5f1d7a84c03be692 "$work/answer.txt"; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
rm -rf "$work"
sleep 1
