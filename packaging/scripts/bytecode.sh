# Python does not write there by itself. Checked against the source, so that a compiled file never
# stands for another version. Without plotly, which no tick needs and which is most of the files.
compile_code() {
  @PYTHON@ -I -m compileall -q -x '/vendor/plotly/' --invalidation-mode checked-hash \
    /usr/lib/slurm-malleable >/dev/null 2>&1 || :
}

remove_compiled() {
  [ ! -d /usr/lib/slurm-malleable ] ||
    find /usr/lib/slurm-malleable -name __pycache__ -type d -prune -exec rm -rf {} +
}
