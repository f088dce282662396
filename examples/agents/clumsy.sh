ls /app
apt-get install -y no-such-sorter
no-such-sorter --by 2 /app/orders.csv > /app/best.txt
echo "Hello" > /app/greeting.txt
cat /app/greeting.txt
