# What the agent of the honest submission does: it solves one of the two tasks.
ls /app
echo 42 > /app/answer.txt
cat /app/answer.txt
