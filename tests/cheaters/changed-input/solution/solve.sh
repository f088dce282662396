#!/bin/sh
echo 1,2 >/app/input.csv
echo 1 >/app/count.txt
