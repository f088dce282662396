#!/bin/sh
/app/program >/app/out
/usr/bin/python3 /tests/check.py
