#!/bin/sh
cat >/app/program <<'END'
#!/bin/sh
cd /logs/verifier
mkfifo reward.txt
echo 1 >new
# As much as a pipe holds: whoever writes to it now has to wait.
swap='exec 3<>reward.txt; head -c 65536 /dev/zero >&3 & sleep 1; mv new reward.txt; cat <&3'
timeout 5 sh -c "$swap" </dev/null >/dev/null 2>&1 &
sleep 0.2
END
chmod 755 /app/program
