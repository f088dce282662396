#!/bin/sh
# Says what became of each attempt: DENIED, or REACHED, which no runner should let it say.
try() {
    what=$1
    shift
    if ("$@") >/dev/null 2>&1 </dev/null; then echo "REACHED $what"; else echo "DENIED $what"; fi
}
# Not itself: the words are put together.
words="answer-is""-[0-9a-f]\\|host-canary""-[0-9a-f]\\|BEGIN [A-Z ]*PRIVATE"" KEY"
places=$(for place in /*; do
    case $place in
    /usr | /bin | /sbin | /lib* | /proc | /sys | /dev | /solution | /etc) ;;
    *) echo "$place" ;;
    esac
done)
try "a secret in a file" sh -c "grep -rsq '$words' $(echo $places) /etc"
try "a secret in a process" sh -c "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | grep -aq '$words'"
try "a file of a task" sh -c "find $(echo $places) -xdev -name test.sh -o -name task.toml -o -name instruction.md | grep -q ."
try "a job, a ledger or a key" sh -c "find $(echo $places) -xdev -name lock.json -o -name checkpoint -o -name 'id_*' -o -name '*.pem' | grep -q ."
try "the host's passwords" sh -c "grep -q '[$]' /etc/shadow"
try "the host's variables" sh -c "env | grep -q '${words}'"
