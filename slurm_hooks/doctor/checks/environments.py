"""Environments that the site's Prolog lays on the node's disk: who lays them, and where."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_hooks.doctor.facts import CannotLook, Facts, FileSeen, known
from slurm_hooks.doctor.finding import Category, Change, Check, Finding, error, note, warning

VARIABLE = "SPANK_MALLEABLE_ENV"  # a Prolog that lays environments asks for it
HOOK = "preposition"
SECONDS = 60  # the hook's own default


def _store(facts: Facts) -> tuple[str, FileSeen | None]:
    ours = known(facts.plugstack).ours
    if ours is None:
        raise CannotLook(f"{known(facts.plugstack).path} has no line for the plugin")
    return ours.arguments.get("env_store", ""), ours.env_store_file


def _prologs(facts: Facts) -> list[str]:
    """The texts of those that lay environments. Raises CannotLook where one that must be there
    cannot be read."""
    hooks = [hook for hook in known(facts.hooks) if hook.key == "Prolog"]
    found = [_code(hook.text) for hook in hooks if hook.text is not None]
    laying = [text for text in found if HOOK in text or VARIABLE in text]
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
            f"env_store={store} is set, and no Prolog lays environments there",
            advice="let the Prolog call the hook, or remove env_store=: "
            "see docs/admins/environments.md",
        )
    named = {path for text in laying for path in re.findall(r"--store[= ]([^\s\"']+)", text)}
    named = {path for path in named if "$" not in path}
    if laying and not store:
        yield warning(
            "the Prolog lays environments, and the plugin leads no job to them",
            advice=f"add env_store={min(named, default='STORE')} to our line of plugstack.conf",
        )
    elif named and store not in {path.rstrip("/") for path in named} | named:
        yield warning(
            f"env_store={store}, and the Prolog lays environments in {min(named)}",
            advice="name one directory in both",
        )


def _directory(facts: Facts) -> Iterator[Finding]:
    store, seen = _store(facts)
    if not store:
        return
    if seen is None:
        raise CannotLook(f"{store} is not on this host, which may be no compute node")
    if seen.kind != "directory" or seen.uid != 0 or seen.is_open:
        yield error(
            f"{store} is no directory of root's that only root may change: the hook lays nothing",
            advice=f"remove it if a user has made it, then install -d -m 711 {store}",
        )
    elif not seen.is_reachable or not seen.mode & 0o001:
        yield warning(
            f"users cannot enter {store}, so no job finds what is laid there",
            advice=f"chmod 711 {store}, and a+x the directories above it",
        )
    if re.match(r"(/var)?/tmp/|/dev/shm/", store + "/"):
        yield warning(
            f"{store} is where anybody may write, and where old files are often removed",
            advice="name a directory below ones that only root may change, which nothing cleans",
        )


def _in_time(facts: Facts) -> Iterator[Finding]:
    slurm, laying = known(facts.slurm), _prologs(facts)
    limit, start = slurm.number("PrologEpilogTimeout", 65534), slurm.number("BatchStartTimeout", 10)
    for text in laying:
        said = re.findall(r"--seconds[= ](\d+)", text)
        seconds = max(map(int, said), default=SECONDS)
        if limit <= seconds:
            yield error(
                f"--seconds={seconds} and PrologEpilogTimeout={limit}: slurmd may end the Prolog, "
                "and then it drains the node",
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
                "the Prolog sends what the hook says through a pipe to logger",
                advice="let it go to a file: a child that hangs in a dead file system would keep "
                "logger, and with it the Prolog",
            )


TABLE = (
    Check(
        "environments-laid",
        Category.HOOKS,
        "the Prolog lays environments where the plugin looks for them",
        "--malleable-env needs both: the hook in the site's Prolog, and env_store= in our line of "
        "plugstack.conf. With one alone each job uses the original, and nobody is told.",
        _laid,
        is_ours=True,
    ),
    Check(
        "environments-store",
        Category.HOOKS,
        "the directory of environments is root's, and users can enter it",
        "The hook refuses a store that anybody else can change. It is looked at on the host that "
        "this runs on, where the store is there.",
        _directory,
        is_ours=True,
    ),
    Check(
        "environments-time",
        Category.HOOKS,
        "the hook gives up before slurmd gives up the Prolog",
        "A Prolog that reaches PrologEpilogTimeout is killed, which drains the node. A batch job "
        "that a node does not know BatchStartTimeout after its start is requeued as missing, and "
        "while its Prolog runs no node knows it.",
        _in_time,
        is_ours=True,
    ),
)
