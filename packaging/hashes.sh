#!/bin/sh
# Shows each hash in the documents that is no commit of this branch. `make lint` calls it.
# A commit that lands by a rebase gets a new hash, so documents name it by its subject.
set -eu
cd "${1:-$(dirname "$0")/..}"
if [ "$(git rev-parse --is-shallow-repository 2>&1)" != false ]; then
  echo "hashes in documents: not checked, because this is no whole clone"
  exit 0
fi
wrong=0
for word in $(git grep -hoEw '[0-9a-f]{7,40}' -- '*.md' | grep '[0-9]' | grep '[a-f]' | sort -u); do
  git merge-base --is-ancestor "$word" HEAD 2>/dev/null && continue
  git grep -nw "$word" -- '*.md' >&2
  wrong=1
done
[ $wrong = 0 ] || echo "no such commit here: name it by its subject, or give the date alone" >&2
exit $wrong
