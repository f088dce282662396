#!/bin/bash
echo "Hello, examiner." > /app/greeting.txt
