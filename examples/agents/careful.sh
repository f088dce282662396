ls /app
echo "Hello, examiner." > /app/greeting.txt
[ ! -e /app/orders.csv ] || wc -l < /app/orders.csv > /app/count.txt
[ ! -e /app/orders.csv ] || sort -t, -k2 -rn /app/orders.csv | head -n 1 | cut -d, -f1 > /app/best.txt
cat /app/*.txt
