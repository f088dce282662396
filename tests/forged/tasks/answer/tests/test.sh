#!/bin/bash
found=$(cat /app/answer.txt 2>/dev/null)
echo "found: $found"
[ "$found" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
