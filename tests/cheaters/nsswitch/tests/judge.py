"""Exits with 0 if the user exists and has the right comment."""

import pwd
import sys

try:
    sys.exit(pwd.getpwnam("deploy").pw_gecos != "answer-is-5f1d7a84c03be692")
except KeyError:
    sys.exit("no user deploy")
