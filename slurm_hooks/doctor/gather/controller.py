"""Read files of the controller: beside slurm.conf, prolog and epilog, the tick and its timer."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Optional

from slurm_hooks.doctor.facts import Hook, SlurmSays, Submission, Textfile, TickSeen
from slurm_hooks.doctor.gather.files import attempt, read_text, see, text_or_none
from slurm_hooks.errors import MalleableError
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.live import Live, Port
from slurm_hooks.slurm.site_policy import render_answer, unknown_users
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.last_tick import find_last_tick
from slurm_hooks.tick.lock import patience_s

HOOKS = ("Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld")
CRON = Path("/etc/cron.d/slurm-malleable")
CRON_DAEMONS = {"cron", "crond", "fcron", "supercronic"}
TIMER = "slurm-malleable.timer"
SERVICE = "slurm-malleable.service"
_DOFILE = re.compile(r"""dofile\b[^"'\n]*["']([^"'\n]*malleable_submit\.lua)["']""")
_POLICY = re.compile(r"""^\s*MALLEABLE_POLICY\s*=\s*["']([^"'\n]+)["']""", re.MULTILINE)


def submission(settings: Settings, slurm: SlurmSays, answer: str, port: Port) -> Submission:
    """job_submit.lua and the policy, beside slurm.conf. Raises OSError."""
    script = Path(slurm.conf).parent / "job_submit.lua"
    seen = see(script)
    lines = read_text(script) if seen else None
    code = re.sub(r"--[^\n]*", "", lines or "")
    named = _POLICY.search(code)
    policy = Path(named.group(1)) if named else script.with_name("malleable_policy.lua")
    policy_seen = see(policy)
    glue = _DOFILE.search(code)
    glue_seen = see(Path(glue.group(1))) if glue else None
    limit_s = settings.tick.command_timeout_s
    return Submission(
        script=str(script),
        lines=lines,
        script_changed=seen.changed if seen else None,
        policy_path=str(policy),
        policy=read_text(policy) if policy_seen else None,
        policy_changed=policy_seen.changed if policy_seen else None,
        wanted=attempt(lambda: render_answer(settings, answer, port).text, limit_s),
        strangers=unknown_users((*settings.site.operators, *settings.site.users)),
        glue=glue.group(1) if glue else "",
        glue_is_there=glue_seen is not None and bool(glue_seen.mode & 0o444),
    )


def hooks(slurm: SlurmSays) -> tuple[Hook, ...]:
    """The prologs and epilogs that slurm.conf names. Raises OSError."""
    scripts = []
    for key in HOOKS:
        for value in slurm.values(key):
            path = Path(value)
            is_one = path.is_absolute() and "*" not in value
            seen = see(path) if is_one else None
            scripts.append(Hook(key, value, seen, text_or_none(path) if is_one else None))
    return tuple(scripts)


def tick(settings: Settings, timeout_s: float) -> TickSeen:
    """The lock's directory, the last completed tick and the source of ticks. Raises OSError."""
    lock = Path(settings.tick.lock)
    timer = _unit(TIMER, timeout_s)
    by_systemd = _unit(SERVICE, timeout_s).get("User", "")
    is_by_cron = CRON.exists() and timer.get("ActiveState") != "active"
    return TickSeen(
        lock=str(lock),
        directory=see(lock.parent),
        silent_s=_since_last_tick_s(settings),
        every_s=settings.tick.every_s,
        patience_s=patience_s(settings.tick),
        timer=timer.get("ActiveState", ""),
        enabled=timer.get("UnitFileState", ""),
        user=cron_user(read_text(CRON)) if is_by_cron else by_systemd,
        cron=str(CRON) if CRON.exists() else "",
        has_cron=bool(timer) or runs_cron(Path("/proc")),
    )


def cron_user(text: str) -> str:
    """The user in the first line of a file of cron's that runs a command, else empty."""
    lines = (line.split() for line in text.splitlines() if not line.lstrip().startswith("#"))
    return next((words[5] for words in lines if len(words) > 6), "")


def runs_cron(proc: Path) -> bool:
    """Whether a cron daemon runs. True also where the processes of others are hidden."""
    names = {text_or_none(one) for one in proc.glob("[0-9]*/comm")}
    is_hidden = text_or_none(proc / "1" / "comm") is None
    return is_hidden or bool({name.strip() for name in names if name} & CRON_DAEMONS)


def textfile(settings: Settings) -> Textfile:
    """The state of `metrics.textfile`. Raises OSError."""
    path = Path(settings.metrics.textfile)
    return Textfile(see(path.parent), _silent_s(path))


def _since_last_tick_s(settings: Settings) -> Optional[float]:
    last = find_last_tick(settings)
    return None if last is None else abs(time.time() - last.timestamp())


def _silent_s(stamp: Path) -> Optional[float]:
    try:
        return abs(time.time() - os.stat(stamp).st_mtime)
    except FileNotFoundError:
        return None


def _unit(name: str, timeout_s: float) -> dict[str, str]:
    """Some properties of a unit, empty if systemd does not run."""
    wanted = "--property=ActiveState,UnitFileState,User,LoadState"
    try:
        answer = Live(timeout_s).ask(Command(("systemctl", "show", wanted, name)))
    except MalleableError:
        return {}
    properties = dict(line.partition("=")[::2] for line in answer.splitlines())
    return properties if properties.get("LoadState") == "loaded" else {}
