#!/bin/bash
found=$(cat /app/proof.txt 2>/dev/null)
echo "found: $found"
wanted=$(printf proof | sha256sum | cut -d ' ' -f 1)
[ "$found" = "$wanted" ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
