#!/bin/bash
printf proof | sha256sum | cut -d " " -f 1 > /app/proof.txt
