#!/bin/sh
# In a login shell, as a user has it.
if bash -lc 'printenv ANSWER | grep -qx answer-is-5f1d7a84c03be692'; then echo 1; else echo 0; fi \
    >/logs/verifier/reward.txt
