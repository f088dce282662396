#!/bin/sh
rm -rf /app/cases
mkdir /app/cases
