#!/bin/sh
# Makes the source that RPMs and debs are built from, complete: nothing is fetched later.
#
#   packaging/source.sh TARGET    a directory; TARGET/slurm-malleable-VERSION and its .tar.gz
#
# Prints the name of the former and nothing else.
#
# VERSION in the environment replaces that of the package (for tests of upgrades).
set -eu
cd "$(dirname "$0")/.."
target=$1
shipped=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' slurm_hooks/__init__.py)
version=${VERSION:-$shipped}
name=slurm-malleable-$version

stamp=build/tools/.made
for_site=$(sed -n 's/^ *"\(mkdocs-material[^"]*\)".*/\1/p' pyproject.toml)
wanted="$shipped $for_site $(cat packaging/vendor.txt packaging/vendor.py packaging/bill.py | cksum)"
if [ "$(cat $stamp 2>/dev/null || true)" != "$wanted" ]; then
  echo "Fetching the libraries of packaging/vendor.txt, with a bill of materials" >&2
  [ -x build/tools/bin/python ] || /usr/bin/python3 -m venv build/tools
  build/tools/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-python-lib>=8' "$for_site"
  build/tools/bin/python packaging/vendor.py build/wheels build/carried --version "$shipped" >&2
  echo "$wanted" >$stamp
fi

list_source() { # what git has in this tree; without git, everything that is not built
  if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null |
      grep -v '^tests/\|^benchmarks/\|^docs/lab/\|^\.'
  else
    find . -type f ! -path './build/*' ! -path './.*' ! -path './tests/*' ! -path './benchmarks/*' ! -path './docs/lab/*'
  fi
}

rm -rf "$target"
mkdir -p "$target/$name"
list_source >"$target/files"
tar -T "$target/files" -cf - | tar -C "$target/$name" -xf -
rm "$target/files"
cp -r build/carried "$target/$name/carried"
NO_MKDOCS_2_WARNING=1 build/tools/bin/python -m mkdocs build --config-file packaging/site/packaged.yml \
  --site-dir "$(cd "$target/$name/carried" && pwd)/html" >build/site.log 2>&1 || { cat build/site.log >&2; exit 1; }
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" "$target/$name/slurm_hooks/__init__.py"

# One copy of what the scripts of RPMs and debs share.
expand() { # FILE PYTHON: lines @NAME.sh@ become packaging/scripts/NAME.sh
  sed -i -e '/^@core.sh@$/{' -e "r $scripts/core.sh" -e 'd' -e '}' \
    -e '/^@bytecode.sh@$/{' -e "r $scripts/bytecode.sh" -e 'd' -e '}' \
    -e '/^@client.sh@$/{' -e "r $scripts/client.sh" -e 'd' -e '}' \
    -e '/^@slurm.sh@$/{' -e "r $scripts/slurm.sh" -e 'd' -e '}' "$1"
  sed -i -e "s|@PYTHON@|$2|g" -e "s|@VERSION@|$version|g" "$1"
}

spec=$target/$name/slurm-malleable-slurm.spec
scripts=$target/scripts
cp -r packaging/scripts "$scripts"
sed -i 's/%/%%/g' "$scripts"/*.sh # rpm reads them as macros
cp packaging/slurm-malleable-slurm.spec "$spec"
expand "$spec" '%{malleable_python}' # which rpmbuild is told
date=$(sed -n 's/^## .* - \([0-9-]*\)$/\1/p' CHANGELOG.md | head -n 1)
printf '* %s slurm-malleable - %s-1\n- See CHANGELOG.md.\n' \
  "$(LC_ALL=C date -d "$date" '+%a %b %d %Y')" "$version" >"$target/changes"
sed -i -e '/^@CHANGELOG@$/{' -e "r $target/changes" -e 'd' -e '}' "$spec"
rm "$target/changes"
sed -i "s|@LICENCE@|$(cat build/carried/licence.txt)|" "$spec"
sed -i -e '/^@BUNDLED@$/{' -e "r build/carried/provides.txt" -e 'd' -e '}' "$spec"
rm -rf "$scripts"

scripts=packaging/scripts
cp -r packaging/debian "$target/$name/debian"
for file in "$target/$name"/debian/*; do
  [ ! -f "$file" ] || expand "$file" "${PYTHON:-/usr/bin/python3}"
done
maintainer="${DEBFULLNAME:-slurm-malleable} <${DEBEMAIL:-slurm-malleable@localhost}>" # who builds
sed -i "s|@MAINTAINER@|$maintainer|; s|@DATE@|$(LC_ALL=C date -u -d "$date" '+%a, %d %b %Y 00:00:00 +0000')|" \
  "$target/$name/debian/control" "$target/$name/debian/changelog"
tar -C "$target" -czf "$target/$name.tar.gz" "$name"
echo "$name"
