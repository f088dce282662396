#!/bin/bash
points=0
[ "$(tr -d ' ' < /app/count.txt)" = 6 ] && points=$((points + 1))
[ "$(cat /app/best.txt)" = ada ] && points=$((points + 1))
case $points in
    0) echo 0 ;;
    1) echo 0.5 ;;
    2) echo 1 ;;
esac > /logs/verifier/reward.txt
