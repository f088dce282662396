#!/bin/sh
# Of an agent's own command, all of this is output; of `oracle` it is a log inside the environment.
head -c "${CHEATER_FLOOD:-10000000000}" /dev/zero | tr "\\0" x
