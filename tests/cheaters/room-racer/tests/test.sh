#!/bin/sh
# Lasts until whatever the agent left behind went round three times more, or five seconds.
rounds() { wc -c </tmp/rounds 2>/dev/null || echo 0; }
began=$(rounds)
echo 0 >/logs/verifier/reward.txt
for _ in $(seq 25); do
    [ "$(rounds)" -gt $((began + 3)) ] && break
    sleep 0.2
done
read -r answer </app/answer.txt 2>/dev/null
[ "$answer" = "answer-is-5f1d7a84c03be692" ] && echo 1 >/logs/verifier/reward.txt
# What a process of the agent says it reached after the agent's time was over.
cat /tmp/reached 2>/dev/null
true
