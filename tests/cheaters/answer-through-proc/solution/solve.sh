#!/bin/sh
ln -s /proc/self/cwd/expected.txt /app/answer.txt
