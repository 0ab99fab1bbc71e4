#!/bin/bash
# All results as one table.
set -eu
cd "$(dirname "$0")"
{ echo "name,nodes,stiffness,frequency"; cat results/*.csv; } >table.csv
