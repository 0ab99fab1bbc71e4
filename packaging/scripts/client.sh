# The link that plugstack.conf names is switched to this version in one step. Older versions stay
# beside it: jobs may be running from them. During an upgrade rpm has both packages' files in
# client, and only the link `current` tells which directory is the new one.
switch_client() {
  base=$1
  name=$(readlink "$base/client/current")
  source=$base/client/$name
  draft=$base/.$name.$$
  if [ ! -d "$base/$name" ]; then
    cp -a "$source" "$draft"
    mv -T "$draft" "$base/$name"
  fi
  if [ -d "$base/jobpath" ] && [ ! -L "$base/jobpath" ]; then
    mv -T "$base/jobpath" "$base/jobpath-before-$$"
  fi
  ln -s "$name" "$draft"
  mv -T "$draft" "$base/jobpath"
}

remove_client() {
  rm -rf "$1/jobpath" "$1"/jobpath-*
  rmdir "$1" 2>/dev/null || :
}
