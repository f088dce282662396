#!/bin/sh
cat >/app/program <<'END'
#!/bin/sh
cd /logs/verifier
mkfifo reward.txt
swap='exec 3<reward.txt; echo 1 >new; mv new reward.txt; cat <&3'
timeout 20 sh -c "$swap" </dev/null >/dev/null 2>&1 &
END
chmod 755 /app/program
