#!/bin/bash
# One task of the farm: solve.sh INPUT. Waits PACE seconds first, to be watched.
set -eu
cd "$(dirname "$0")"
sleep "${PACE:-0}"
exec octave-cli --quiet --norc --no-history --eval "solve ('$1')"
