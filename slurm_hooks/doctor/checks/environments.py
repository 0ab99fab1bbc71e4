"""Check the environments that the site's Prolog copies to the node's disk."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_hooks.doctor.facts import CannotLook, Facts, FileSeen, known
from slurm_hooks.doctor.finding import Category, Change, Check, Finding, error, note, warning

VARIABLE = "SPANK_MALLEABLE_ENV"  # a Prolog that copies environments reads it
HOOK = "preposition"
SECONDS = 60  # the hook's own default


def _store(facts: Facts) -> tuple[str, FileSeen | None]:
    ours = known(facts.plugstack).ours
    if ours is None:
        raise CannotLook(f"{known(facts.plugstack).path} has no line for the plugin")
    return ours.arguments.get("env_store", ""), ours.env_store_file


def _prologs(facts: Facts) -> list[str]:
    """The texts of the Prologs that copy environments. Raises CannotLook if such a Prolog must
    exist but cannot be read."""
    hooks = [hook for hook in known(facts.hooks) if hook.key == "Prolog"]
    texts = [_code(hook.text) for hook in hooks if hook.text is not None]
    laying = [text for text in texts if HOOK in text or VARIABLE in text]
    hidden = [hook.value for hook in hooks if hook.text is None]
    if hidden and not laying and _store(facts)[0]:
        raise CannotLook(f"Prolog={hidden[0]} cannot be read here")
    return laying


def _code(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _laid(facts: Facts) -> Iterator[Finding]:
    (store, _), laying = _store(facts), _prologs(facts)
    if store and not laying:
        yield warning(
            f"env_store={store} is set, but no Prolog copies environments there",
            advice="let the Prolog call the hook, or remove env_store= (see Environments on the "
            "nodes' own disks in the administrators' pages)",
        )
    named = {path for text in laying for path in re.findall(r"--store[= ]([^\s\"']+)", text)}
    named = {path for path in named if "$" not in path}
    if laying and not store:
        yield warning(
            "the Prolog copies environments, but the plugin does not show them to jobs",
            advice=f"add env_store={min(named, default='STORE')} to our line of plugstack.conf",
        )
    elif named and store not in {path.rstrip("/") for path in named} | named:
        yield warning(
            f"env_store={store}, but the Prolog copies environments to {min(named)}",
            advice="name the same directory in both",
        )


def _directory(facts: Facts) -> Iterator[Finding]:
    store, seen = _store(facts)
    if not store:
        return
    if seen is None:
        raise CannotLook(f"{store} is not on this host, which may not be a compute node")
    if seen.kind != "directory" or seen.uid != 0 or seen.is_open:
        yield error(
            f"{store} is not a directory that only root may change: the hook refuses it",
            advice=f"remove it if a user has made it, then install -d -m 711 {store}",
        )
    elif not seen.is_reachable or not seen.mode & 0o001:
        yield warning(
            f"users cannot enter {store}, so jobs cannot use the environments there",
            advice=f"chmod 711 {store}, and a+x the directories above it",
        )
    if re.match(r"(/var)?/tmp/|/dev/shm/", store + "/"):
        yield warning(
            f"all users may write beside {store}, and old files there are often removed",
            advice="name a directory that is never cleaned, where only root may change all "
            "directories above it",
        )


def _in_time(facts: Facts) -> Iterator[Finding]:
    slurm, laying = known(facts.slurm), _prologs(facts)
    limit, start = slurm.number("PrologEpilogTimeout", 65534), slurm.number("BatchStartTimeout", 10)
    for text in laying:
        said = re.findall(r"--seconds[= ](\d+)", text)
        seconds = max(map(int, said), default=SECONDS)
        if limit <= seconds:
            yield error(
                f"--seconds={seconds} and PrologEpilogTimeout={limit}: slurmd may end the Prolog "
                "and drain the node",
                Change("PrologEpilogTimeout", str(2 * seconds)),
            )
        if start <= seconds:
            yield warning(
                f"--seconds={seconds} and BatchStartTimeout={start}: a fragment whose Prolog still "
                "runs is requeued as missing when slurmctld is reconfigured",
                Change("BatchStartTimeout", str(seconds + 10)),
            )
        if re.search(r"\|\s*logger", text):
            yield note(
                "the Prolog pipes the hook's output to logger",
                advice="write it to a file: a child that hangs in a dead file system would block "
                "logger, and with it the Prolog",
            )


TABLE = (
    Check(
        "environments-laid",
        Category.HOOKS,
        "the Prolog copies environments to the directory that the plugin reads",
        "--malleable-env needs both the hook in the site's Prolog and env_store= in our line of "
        "plugstack.conf. If either is missing, each job silently uses the original.",
        _laid,
        is_ours=True,
    ),
    Check(
        "environments-store",
        Category.HOOKS,
        "only root can change the directory of environments, and users can enter it",
        "The hook refuses a store that other users can change. This check runs on the current "
        "host, if the store exists there.",
        _directory,
        is_ours=True,
    ),
    Check(
        "environments-time",
        Category.HOOKS,
        "the hook ends before slurmd ends the Prolog",
        "slurmd kills a Prolog at PrologEpilogTimeout, and the node is drained. While the Prolog "
        "runs, no node knows the batch job. Slurm requeues such a job as missing after "
        "BatchStartTimeout.",
        _in_time,
        is_ours=True,
    ),
)
