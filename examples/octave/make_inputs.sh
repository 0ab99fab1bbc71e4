#!/bin/bash
# Inputs for solve.m: make_inputs.sh [COUNT]. Each is a small Octave script that sets the values of a task.
set -eu
mkdir -p inputs
for ((number = 1; number <= ${1:-100}; number++)); do
  printf 'nodes = %d; %% of the grid on the unit interval\nstiffness = %d;\n' \
    $((50 + number)) $((1 + number % 7)) >"inputs/$(printf %04d "$number").m"
done
