# Python does not write there by itself. Checked against the source, so that a compiled file never
# stands for another version.
compile_code() { # DIRECTORY
  @PYTHON@ -I -m compileall -q --invalidation-mode checked-hash "$1" >/dev/null 2>&1 || :
}

remove_compiled() { # DIRECTORY
  [ ! -d "$1" ] || find "$1" -name __pycache__ -type d -prune -exec rm -rf {} +
}
