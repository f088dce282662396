#!/bin/sh
if perl /tests/answer.t; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
