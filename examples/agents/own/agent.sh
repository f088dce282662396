#!/bin/bash
# The shape of your own agent: the instruction comes on standard input, the work is ordinary commands.
instruction=$(cat)
case $instruction in
    *greeting.txt*) echo "Hello, examiner." > /app/greeting.txt ;;
    *orders.csv*) grep -c . /app/orders.csv > /app/count.txt ;;
esac
