# A tick in flight ends with the files that it began with. The lock is opened with the rights of its
# user, who owns its directory, and might have put a pipe there.
await_tick() {
  lock=/run/slurm-malleable/tick.lock
  [ -f "$lock" ] && [ ! -L "$lock" ] || return 0
  user=$(stat -c %u "$lock") group=$(stat -c %g "$lock") || return 0
  timeout -k 1 70 setpriv --reuid="$user" --regid="$group" --clear-groups --no-new-privs \
    flock --wait 60 "$lock" true 2>/dev/null || :
}

make_user() {
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers slurm-malleable.conf || :
  elif ! id slurm-malleable >/dev/null 2>&1; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/slurm-malleable \
      --shell /usr/sbin/nologin slurm-malleable || :
  fi
  if command -v systemd-tmpfiles >/dev/null; then
    systemd-tmpfiles --create slurm-malleable.conf || :
  fi
}

# As the preset says, which is: off.
know_units() {
  [ -d /run/systemd/system ] || return 0
  systemctl daemon-reload || :
  [ "$1" = upgrade ] || systemctl preset slurm-malleable.timer >/dev/null 2>&1 || :
}

stop_units() {
  [ ! -d /run/systemd/system ] ||
    systemctl --no-reload disable --now slurm-malleable.timer >/dev/null 2>&1 || :
}

say_next_steps() {
  echo "slurm-malleable is installed, and nothing is switched on. The next step: malleable doctor --pre"
  echo "(one page: /usr/share/doc/slurm-malleable/admins/packages.md)"
}

say_what_is_left() {
  echo "slurm-malleable: to take out, if you put them there:"
  echo "  /etc/systemd/system/slurm-malleable.service.d, /etc/tmpfiles.d/slurm-malleable.conf"
  echo "  /etc/cron.d/slurm-malleable, /etc/cron.d/slurm-malleable-boot"
  echo "  malleable_policy.lua beside slurm.conf; the partition for malleable jobs in slurm.conf, and"
  echo "  PreemptType, PreemptMode if they were set for it"
  echo "  in the accounting database: sacctmgr delete user slurm-malleable, and the QOS of site.qos"
  echo "  .malleable-UID in users' working directories, and cbc if no other program needs it"
  echo "Kept, unless you purge: /var/lib/slurm-malleable and the user slurm-malleable."
}

# The state is kept if there is any.
remove_runtime() {
  rm -rf /run/slurm-malleable
  rmdir /var/lib/slurm-malleable 2>/dev/null || :
}
