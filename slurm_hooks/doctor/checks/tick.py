"""Check that ticks run, and that their user has the rights for their actions."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_hooks.doctor.facts import Accounting, Facts, SlurmSays, TickSeen, known
from slurm_hooks.doctor.finding import (
    Category,
    Check,
    Finding,
    Fix,
    Paste,
    Run,
    error,
    note,
    warning,
)
from slurm_hooks.tick.last_tick import is_silent

ENABLE = Run("systemctl enable --now slurm-malleable.timer", "root")
_CRON = "/usr/share/slurm-malleable/cron/slurm-malleable"
ACTIVE_DROP_IN = "/etc/systemd/system/slurm-malleable.service.d/active.conf"


def _last_tick(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.tick)
    if seen.silent_s is None:
        yield error(
            f"no tick has ever been completed ({seen.lock}.done does not exist)",
            Run("malleable reconcile --dry-run", "the user of the tick"),
            advice="read the actions that a tick would take, then start the timer",
        )
    elif seen.silent_s > seen.patience_s:
        yield error(
            f"no tick has been completed for {seen.silent_s / 60:.0f} min, so leases run out (a "
            "tick whose changes Slurm refused does not count)",
            Run("journalctl -u slurm-malleable -n 20", "root"),
            Run("malleable reconcile", "the user of the tick"),
            advice="read the reason in the log, or run a tick by hand",
        )
    elif is_silent(seen.silent_s, seen.every_s):
        yield warning(
            f"no tick for {seen.silent_s:.0f} s (expected every {seen.every_s:g} s): no job can "
            "start or grow",
            Run("journalctl -u slurm-malleable -n 20", "root"),
        )


def _timer(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.tick)
    is_alive = seen.silent_s is not None and seen.silent_s <= seen.patience_s
    if seen.timer == "active" or seen.cron:
        if seen.timer == "active" and seen.cron:
            yield warning(
                f"the timer and {seen.cron} both start ticks", Run(f"rm {seen.cron}", "root")
            )
        if seen.timer != "active" and not seen.has_cron:
            severity = warning if is_alive else error
            yield severity(
                f"no cron daemon runs here, so {seen.cron} starts no tick",
                advice="install and start a cron daemon, also after a reboot",
            )
        if seen.timer == "active" and seen.enabled == "disabled":
            yield warning("the timer runs, but will not run after a reboot", ENABLE)
        return
    if is_alive:
        yield note(
            "neither the timer nor a file in /etc/cron.d is active here, but ticks come",
            advice="make sure that their source (`--loop`, another cron) survives a reboot",
        )
    elif seen.timer:
        yield error(f"the timer is {seen.timer}", ENABLE)
    else:
        yield error(
            "neither a systemd timer nor a file of cron starts ticks on this host", _by_cron(facts)
        )


def _lock(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.tick)
    if seen.directory is None:
        return
    where = seen.lock.rpartition("/")[0]
    if seen.directory.kind != "directory":
        yield error(f"{where} is not a directory", advice="remove it, or change tick.lock")
    elif seen.directory.is_open:
        yield error(
            f"others can write to {where} (mode {seen.directory.mode:o})",
            Run(f"chmod go-w {where}", "root"),
            advice="do this if the directory has no other use; else change tick.lock",
        )


def _rights(facts: Facts) -> Iterator[Finding]:
    slurm, seen = known(facts.slurm), known(facts.tick)
    user, slurm_user = _user(seen), _slurm_user(slurm)
    if user in ("", "root", slurm_user):
        return
    if _has_database(slurm):
        yield from _admin_level(user, slurm_user, known(facts.accounting))
        return
    yield error(
        f"the tick runs as {user}, which is neither root nor SlurmUser ({slurm_user}), and there "
        "is no accounting database to make that user an Administrator",
        _run_as(slurm_user) if _is_by_systemd(seen) else _by_cron(facts),
        *_directories_for(slurm_user),
    )


def _user(seen: TickSeen) -> str:
    return seen.user or (seen.directory.owner if seen.directory else "")


def _slurm_user(slurm: SlurmSays) -> str:
    return slurm.value("SlurmUser").split("(")[0]


def _has_database(slurm: SlurmSays) -> bool:
    return slurm.value("AccountingStorageType") == "accounting_storage/slurmdbd"


def _is_by_systemd(seen: TickSeen) -> bool:
    return seen.timer == "active" or (bool(seen.timer) and not seen.cron)


def _run_as(user: str) -> Fix:
    return Paste(
        "/etc/systemd/system/slurm-malleable.service.d/user.conf",
        f"[Service]\nUser={user}",
        then="systemctl daemon-reload",
    )


def _by_cron(facts: Facts) -> Fix:
    """The command that installs the cron line. The same for `timer` and `rights`, so that the list
    of steps has it once."""
    slurm = facts.slurm
    if isinstance(slurm, SlurmSays) and not _has_database(slurm):
        change = f"s/ slurm-malleable told=/ {_slurm_user(slurm)} told=/"
        return Run(f"sed '{change}' {_CRON} >/etc/cron.d/slurm-malleable", "root")
    return Run(f"cp {_CRON} /etc/cron.d/", "root")


def _directories_for(user: str) -> tuple[Fix, ...]:
    change = f"s/ slurm-malleable slurm-malleable / {user} {user} /"
    return (
        Run(
            f"sed '{change}' /usr/lib/tmpfiles.d/slurm-malleable.conf "
            ">/etc/tmpfiles.d/slurm-malleable.conf",
            "root",
        ),
        Run("systemd-tmpfiles --create slurm-malleable.conf", "root"),
        Run(
            f"rm -f /run/slurm-malleable/*; chown -R {user}: /var/lib/slurm-malleable",
            "root",
        ),
    )


def _admin_level(user: str, slurm_user: str, accounting: Accounting) -> Iterator[Finding]:
    level = accounting.levels.get(user)
    if level is None:
        yield error(
            f"the tick runs as {user}, which the accounting database does not have",
            Run(f"sacctmgr -i add user {user} account=root adminlevel=admin", "root"),
            advice=f"or run it as {slurm_user}",
        )
    elif not level.startswith("Admin"):
        yield error(
            f"the tick runs as {user}, whose admin level is {level}",
            Run(f"sacctmgr -i modify user {user} set adminlevel=admin", "root"),
            advice=f"or run it as {slurm_user}",
        )


def _one_host(facts: Facts) -> Iterator[Finding]:
    slurm, seen = known(facts.slurm), known(facts.tick)
    if "SlurmctldHost[1]" in slurm.config and (seen.timer == "active" or seen.cron):
        yield note(
            f"there is a backup controller ({slurm.config['SlurmctldHost[1]']})",
            Paste(
                ACTIVE_DROP_IN,
                '[Service]\nExecCondition=/bin/sh -c \'scontrol ping | grep -m1 " UP$$" | '
                'grep -qE "at $$(hostname -s)[. ]"\'',
                then="systemctl daemon-reload",
            ),
            advice="with these lines only the host of the active slurmctld runs the tick",
        )


def _textfile(facts: Facts) -> Iterator[Finding]:
    path = facts.settings.metrics.textfile
    if not path:
        return
    seen, tick = known(facts.textfile), known(facts.tick)
    if not path.endswith(".prom"):
        yield warning(
            f"metrics.textfile = {path}: node_exporter reads only files that end in .prom",
            Paste(facts.settings_path, f'textfile = "{path}.prom"', "in the section [metrics]"),
        )
    if seen.directory is None or seen.directory.kind != "directory":
        yield error(
            f"metrics.textfile = {path}: its directory does not exist",
            advice="name the directory of node_exporter (--collector.textfile.directory), and let "
            "the user of the tick write there",
        )
    elif tick.silent_s is not None and (
        seen.age_s is None or seen.age_s > tick.silent_s + tick.patience_s
    ):
        yield error(
            f"{path} was not written by the last ticks",
            advice="read the reason in the tick's log; its user must be able to write there",
        )


def _solver(facts: Facts) -> Iterator[Finding]:
    if not known(facts.milp):
        yield warning(
            "no MILP solver is installed: with many jobs and node classes, allocations keep the "
            "gap that `malleable plan` shows",
            advice="install coinor-cbc (Debian) or coin-or-Cbc (EPEL)",
        )


TABLE = (
    Check(
        "lock-directory",
        Category.TICK,
        "other users cannot write to the directory of the lock",
        "A user that can open the lock could hold it and block every tick. So a tick refuses such "
        "a directory (exit code 78).",
        _lock,
        is_ours=True,
    ),
    Check(
        "rights",
        Category.TICK,
        "the user of the tick may write AdminComment",
        "The mark of a fragment is in its AdminComment. Only root, SlurmUser and Administrators of "
        "the accounting database may write it. An Operator may not.",
        _rights,
        is_ours=True,
    ),
    Check(
        "last-tick",
        Category.TICK,
        "a tick was completed recently",
        "Without ticks jobs do not grow, and fragments end with their leases.",
        _last_tick,
        is_ours=True,
    ),
    Check(
        "timer",
        Category.TICK,
        "a single timer starts ticks, also after a reboot",
        "A timer that was started but not enabled ends with the next reboot. Two sources of ticks "
        "disturb each other.",
        _timer,
        is_ours=True,
    ),
    Check(
        "solver",
        Category.TICK,
        "a MILP solver is installed",
        "The built-in solvers are exact for equal nodes, and for few jobs. In other cases they "
        "return a good answer with a bound, and a MILP solver closes the gap.",
        _solver,
        is_ours=True,
    ),
    Check(
        "one-host",
        Category.TICK,
        "only one host runs the tick",
        "The lock is local to its host. Two controllers would overwrite each other's marks.",
        _one_host,
        is_ours=True,
    ),
    Check(
        "metrics-file",
        Category.TICK,
        "metrics.textfile, if it is set, is written, and node_exporter reads its name",
        "Without it the dashboard shows a cluster without malleable jobs.",
        _textfile,
        is_ours=True,
    ),
)
