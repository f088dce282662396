#!/bin/sh
git init -q /app
cd /app || exit
: >answer.txt
git add answer.txt
git -c user.name=agent -c user.email=agent@localhost commit -qm answer
echo '* filter=cheat' >~/.attributes
git config --global core.attributesFile '~/.attributes'
git config --global filter.cheat.clean cat
git config --global filter.cheat.smudge 'cat /tests/expected.txt'
