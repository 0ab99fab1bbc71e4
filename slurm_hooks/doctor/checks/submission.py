"""Check that sbatch --malleable reaches our checks, with the policy of the settings."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_hooks.doctor.facts import CannotLook, Facts, Unread, known
from slurm_hooks.doctor.finding import (
    Category,
    Change,
    Check,
    Finding,
    Paste,
    Run,
    error,
    warning,
)

GLUE = "/usr/share/slurm-malleable/lua/malleable_submit.lua"
FINE_S = 1.0  # slurmctld reports its start in whole seconds
OUR_SCRIPT = "/usr/share/slurm-malleable/lua/job_submit.lua"


def _plugin(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    value = slurm.value("JobSubmitPlugins")
    if "lua" not in value.replace("job_submit/", "").split(","):
        yield error(
            f"JobSubmitPlugins={value or '(none)'}",
            Change(
                "JobSubmitPlugins",
                ",".join([*filter(None, [value]), "lua"]),
                then="restart slurmctld",
            ),
        )


def _chain(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.submission)
    if seen.lines is None:
        copy = Run(f"cp {OUR_SCRIPT} {seen.script}", "root", is_first=True)
        yield error(f"{seen.script} does not exist", copy)
    elif not seen.glue:
        yield error(
            f"{seen.script} does not load malleable_submit.lua",
            Paste(
                seen.script,
                f'pcall(dofile, "{GLUE}")',
                place="before its final `return slurm.SUCCESS`",
            ),
        )
    elif not seen.glue_is_there:
        yield error(
            f"{seen.script} loads {seen.glue}, which is missing, or which not all users can read",
            advice="install the package slurm-malleable-slurm on the controller, or correct the "
            "path",
        )


def _policy(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.submission)
    render = Run(f"malleable render lua -o {seen.policy_path} && touch {seen.script}", "root")
    if seen.policy is None:
        yield error(
            f"{seen.policy_path} does not exist, so job_submit refuses malleable jobs", render
        )
    elif seen.policy != known(seen.wanted):
        keys = _differing(seen.policy, known(seen.wanted))
        yield warning(
            f"{seen.policy_path} is older than the settings, Slurm's limits, the nodes or this "
            f"version ({keys} differ)",
            render,
        )


def _differing(have: str, want: str) -> str:
    """The keys of the lines that differ, sorted."""
    odd = set(have.splitlines()) ^ set(want.splitlines())
    keys = {line.split("=")[0].strip() for line in odd if "=" in line}
    return ", ".join(sorted(keys)) or "comments"


def _policy_loaded(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.submission)
    if seen.policy_changed is None or seen.script_changed is None:
        raise CannotLook("there is no policy")
    started_s = known(facts.slurm).number("BOOT_TIME", 0)
    looked_s = max(seen.script_changed.timestamp(), started_s)
    if seen.policy_changed.timestamp() > looked_s + FINE_S:
        yield warning(
            f"{seen.policy_path} is newer than {seen.script}, so slurmctld has not read it yet",
            Run(f"touch {seen.script}", "root"),
        )


def _operators(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.submission)
    users = facts.settings.site.users
    nobody_submits = bool(users) and all(name in seen.strangers for name in users)
    for name in seen.strangers:
        say = error if nobody_submits and name in users else warning
        yield say(
            f"{name} is not a user of this host, so the name has no effect",
            advice="correct site.operators or site.users in "
            f"{facts.settings_path or 'malleable.toml'}",
        )
    runs = "" if isinstance(facts.tick, Unread) else facts.tick.user
    if runs and runs not in facts.settings.site.operators:
        names = ", ".join(f'"{name}"' for name in (*facts.settings.site.operators, runs))
        yield error(
            f"the tick runs as {runs}, which site.operators does not name",
            Paste(facts.settings_path, f"operators = [{names}]", place="in the section [site]"),
            advice="then render the policy again",
        )


TABLE = (
    Check(
        "job-submit-plugin",
        Category.SUBMISSION,
        "job_submit/lua is switched on",
        "job_submit turns `sbatch --malleable` into an array of held elements. Without it such a "
        "job is an ordinary job and starts as soon as it can.",
        _plugin,
        is_ours=True,
    ),
    Check(
        "job-submit-chain",
        Category.SUBMISSION,
        "the site's job_submit.lua loads our checks",
        "A site has a single job_submit.lua, so a line in it loads ours. Its own functions run "
        "first, and their refusal stands.",
        _chain,
        is_ours=True,
    ),
    Check(
        "policy",
        Category.SUBMISSION,
        "the policy of job_submit matches the settings and this version",
        "Lua cannot read TOML, so `malleable render lua` writes the site's rules for it. With an "
        "old policy users get old limits.",
        _policy,
        is_ours=True,
    ),
    Check(
        "policy-loaded",
        Category.SUBMISSION,
        "slurmctld has read the policy",
        "slurmctld reads the policy only when the modification time of job_submit.lua changes.",
        _policy_loaded,
        is_ours=True,
    ),
    Check(
        "operators",
        Category.SUBMISSION,
        "the users in site.operators and site.users exist",
        "Only operators may release, move or extend fragments by hand. The user of the tick must "
        "be among them. If this host knows no name in site.users, all malleable jobs are refused.",
        _operators,
        is_ours=True,
    ),
)
