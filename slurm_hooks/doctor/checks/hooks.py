"""Check the prologs and epilogs around each fragment, ours and the site's."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_hooks.doctor.checks.limits import largest_job
from slurm_hooks.doctor.facts import CannotLook, Facts, Hook, known
from slurm_hooks.doctor.finding import Category, Change, Check, Finding, note, warning

OURS = "/usr/libexec/slurm-malleable/epilog.sh"
MARK = "SPANK_MALLEABLE"  # our Epilog reads this variable, whatever the name of the file


def _hooks(facts: Facts, key: str) -> list[Hook]:
    return [hook for hook in known(facts.hooks) if hook.key == key]


def _is_ours(hook: Hook) -> bool:
    return "slurm-malleable/epilog.sh" in f"{hook.value}{hook.text or ''}" or (
        hook.text is not None and MARK in hook.text
    )


def _epilog(facts: Facts) -> Iterator[Finding]:
    slurm, hooks = known(facts.slurm), _hooks(facts, "Epilog")
    if slurm.value("ProctrackType") == "proctrack/cgroup" or any(map(_is_ours, hooks)):
        return
    if not hooks:
        yield warning(
            f"ProctrackType={slurm.value('ProctrackType')} and no Epilog", Change("Epilog", OURS)
        )
    for hook in hooks:
        if hook.text is None and "*" in hook.value:
            yield note(
                f"Epilog={hook.value} is a pattern",
                advice=f"let one of its scripts run {OURS}; patterns run in reverse order",
            )
        elif hook.text is not None:
            yield warning(
                f"the site's Epilog {hook.value} does not run ours",
                advice=f"add the line `{OURS}` to it, which is silent and always ends with 0",
            )


def _readable(facts: Facts) -> Iterator[Finding]:
    hook = next(filter(_is_ours, _hooks(facts, "Epilog")), None)
    if hook is None or hook.file is None:
        raise CannotLook("our Epilog is not in use, or not on this host")
    if not hook.file.is_for_all or not hook.file.mode & 0o001:
        yield warning(
            f"{hook.value} cannot be read and run by every user",
            advice="our Epilog looks for processes with the rights of the job's user, so that user "
            "must be able to read it: move it to a directory that all users may enter, or chmod "
            f"a+rx {hook.value}",
        )


def _prolog(facts: Facts) -> Iterator[Finding]:
    for hook in _hooks(facts, "Prolog"):
        if hook.file is None and "*" not in hook.value and facts.host.uid == 0:
            yield warning(
                f"Prolog={hook.value} is not on this host",
                advice="fine if this is not a compute node: a compute node without it is drained "
                "at its first job",
            )
        yield from _patterns(facts, hook)


def _patterns(facts: Facts, hook: Hook) -> Iterator[Finding]:
    if "*" in hook.value and known(facts.slurm).is_configless:
        yield warning(
            f"{hook.key}={hook.value} is a pattern, and this cluster is configless",
            advice="configless nodes do not get them: copy them to each node, or name a script",
        )


def _on_controller(facts: Facts) -> Iterator[Finding]:
    most, _ = largest_job(facts)
    for hook in (*_hooks(facts, "EpilogSlurmctld"), *_hooks(facts, "PrologSlurmctld")):
        slow = hook.text is not None and "sleep" in hook.text
        finding = warning if slow else note
        yield finding(
            f"{hook.key}={hook.value} runs once for each fragment, up to {most} at once for a job"
            + (", and it sleeps" if slow else ""),
            advice='make it leave at once for malleable jobs: [ -n "$SLURM_ARRAY_JOB_ID" ] and '
            "the job's partition tell them apart",
        )


TABLE = (
    Check(
        "epilog",
        Category.HOOKS,
        "processes that a fragment leaves behind are ended",
        "A daemon of a training would keep the GPU of a node that has been given back. "
        "proctrack/cgroup or our Epilog ends it.",
        _epilog,
        is_ours=True,
    ),
    Check(
        "epilog-readable",
        Category.HOOKS,
        "the Epilog can be read by the users of jobs",
        "The Epilog drops root's rights before it looks for processes.",
        _readable,
        is_ours=True,
    ),
    Check(
        "prolog",
        Category.HOOKS,
        "the Prolog exists on this host",
        "It runs at each start of a fragment. A Prolog that is missing or fails drains the node.",
        _prolog,
    ),
    Check(
        "slurmctld-hooks",
        Category.HOOKS,
        "no slow script runs on the controller for each fragment",
        "EpilogSlurmctld and PrologSlurmctld run on the controller once for each fragment that "
        "ends or starts. For example, 512 preempted fragments are 512 processes at the same time.",
        _on_controller,
    ),
)
