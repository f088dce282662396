#!/bin/sh
mkdir -p /tests/checks
printf '#!/bin/sh\necho 1 >/logs/verifier/reward.txt\n' >/tests/test.sh
echo 'echo 1 >/logs/verifier/reward.txt; exit' >/tests/checks/00-pass.sh
chmod -R 777 /tests
