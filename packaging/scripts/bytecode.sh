# Python does not write there by itself. Checked against the source, so that a compiled file never
# stands for another version. Without plotly, which no tick needs and which is most of the files.
compile_code() { # DIRECTORY
  @PYTHON@ -I -m compileall -q -x '/vendor/plotly/' --invalidation-mode checked-hash "$1" \
    >/dev/null 2>&1 || :
}

remove_compiled() { # DIRECTORY
  [ ! -d "$1" ] || find "$1" -name __pycache__ -type d -prune -exec rm -rf {} +
}
