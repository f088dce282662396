#!/bin/sh
cd /app || exit
python3 -c "import checker; assert checker.check('/app/answer.txt')" && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
