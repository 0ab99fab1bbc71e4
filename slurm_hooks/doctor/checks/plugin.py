"""The SPANK plugin on this host, and what can be said from here of the others."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_hooks.doctor.facts import CannotLook, Facts, PluginLine, Plugstack, known
from slurm_hooks.doctor.finding import Category, Check, Finding, Paste, error, note, warning
from slurm_hooks.model.plural import plural

JOB_PATH = "/usr/share/slurm-malleable/jobpath"
DIRECTORY = "%w/.malleable-%U/%C/%A"
PYXIS_PASSES_SIGTERM = (0, 24)


def our_line(directory: str) -> str:
    """The line of plugstack.conf for a Slurm with its plugins in that directory."""
    return (
        f"optional {directory}/malleable.so pythonpath={JOB_PATH} max_restarts=1000 dir={DIRECTORY}"
    )


def _plugstack(facts: Facts) -> Iterator[Finding]:
    found = known(facts.plugstack)
    if found.ours is None:
        yield error(
            f"{found.path} has no line for malleable.so",
            Paste(found.path, our_line(found.directory)),
            advice="on every submit host and every compute node",
        )
        return
    yield from _line(found.ours)


def _line(ours: PluginLine) -> Iterator[Finding]:
    path = ours.where.file
    words = " ".join(f"{key}={value}" for key, value in ours.arguments.items())
    better = Paste(path, f"optional {ours.plugin} {words}", instead=ours.where)
    if ours.is_required:
        yield warning(f"{path}: our line says `required`", better)
    if ours.unknown:
        yield warning(
            f"{path}: our line has arguments that the plugin ignores: {' '.join(ours.unknown)}",
            better,
        )
    if "%U" not in ours.arguments.get("dir", DIRECTORY):
        yield error(
            f"{path}: dir={ours.arguments['dir']} has no %U",
            advice="nobody else can use a directory that one user has created: write "
            f"dir={DIRECTORY}, or another path with %U, %C and %A",
        )


def _ours(facts: Facts) -> tuple[Plugstack, PluginLine]:
    """plugstack.conf and our line in it. Raises CannotLook if there is none."""
    found = known(facts.plugstack)
    if found.ours is None:
        raise CannotLook(f"{found.path} has no line for it")
    return found, found.ours


def _plugin_file(facts: Facts) -> Iterator[Finding]:
    found, ours = _ours(facts)
    seen, path = ours.plugin_file, ours.plugin
    if seen is None:
        yield error(
            f"{path}, which {found.path} names, is not on this host",
            advice="install the package slurm-malleable-slurm here",
        )
    elif not seen.is_for_all:
        yield error(
            f"{path} cannot be read by every user, so their sbatch has no --malleable",
            advice=f"chmod a+rX {path} and the directories above it",
        )


def _plugin_release(facts: Facts) -> Iterator[Finding]:
    slurm, (_found, ours) = known(facts.slurm), _ours(facts)
    is_tried = ours.arguments.get("untested") == "use"  # the site has tested it
    if ours.tested and slurm.version[:2] not in ours.tested and not is_tried:
        names = ", ".join(f"{year}.{month:02d}" for year, month in ours.tested)
        yield error(
            f"{ours.plugin} knows Slurm {names}, not {slurm.value('SLURM_VERSION')}: it "
            "registers no option here",
            advice="upgrade the package slurm-malleable-slurm, or build the plugin for it "
            "(docs/admins/packages.md)",
        )


def _job_path(facts: Facts) -> Iterator[Finding]:
    found, ours = _ours(facts)
    path, seen = ours.arguments.get("pythonpath"), ours.job_path_file
    if path is None:
        yield error(
            f"{ours.where.file}: our line has no pythonpath=",
            Paste(ours.where.file, our_line(found.directory), instead=ours.where),
        )
    elif seen is None:
        yield error(
            f"{path}, which pythonpath= names, is not on this host",
            advice="install the package slurm-malleable-client here, or name a file system that "
            "all nodes share",
        )
    elif not seen.is_for_all:
        yield error(
            f"{path} cannot be read by every user", advice=f"chmod -R a+rX {path} and above it"
        )


def _every_node(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    how = "they pass on plugstack.conf, but not the plugin itself" if slurm.is_configless else ""
    nodes = len({words["NodeName"] for words in slurm.nodes})
    seen = f"the {plural(nodes, 'compute node')} cannot be asked from here"
    yield note(
        f"{seen}; configless: {how}" if how else seen,
        advice="run on each, for example with clush or pdsh: malleable doctor --node",
    )


def _pyxis(facts: Facts) -> Iterator[Finding]:
    found = known(facts.plugstack)
    if not found.pyxis:
        return
    version = found.pyxis_version
    if version is None:
        yield note(
            f"{found.pyxis}: its version cannot be read here",
            advice="pyxis before 0.24 does not pass SIGTERM into containers",
        )
    elif version < PYXIS_PASSES_SIGTERM:
        shown = ".".join(map(str, version))
        yield warning(
            f"{found.pyxis} is version {shown}",
            advice="upgrade pyxis to 0.24 or newer, or set KillWait low: training in a container "
            "is only ended by SIGKILL",
        )


TABLE = (
    Check(
        "plugstack",
        Category.PLUGIN,
        "plugstack.conf of this host loads the plugin as an optional one",
        "Without the plugin sbatch knows no --malleable, and a job on a node without it does not "
        "find its rendezvous. `optional`: if it breaks, the option is gone and nothing else.",
        _plugstack,
        is_ours=True,
    ),
    Check(
        "plugin-file",
        Category.PLUGIN,
        "the plugin is on this host, for all to read",
        "Where plugstack.conf names a file that is not there, the option is silently unknown.",
        _plugin_file,
        is_ours=True,
    ),
    Check(
        "plugin-release",
        Category.PLUGIN,
        "the plugin on this host knows this release of Slurm",
        "One plugin serves all releases on which it was tested. On any other it is silent and does "
        "nothing, so that an upgrade of Slurm breaks no sbatch: --malleable is then unknown.",
        _plugin_release,
        is_ours=True,
    ),
    Check(
        "job-path",
        Category.PLUGIN,
        "the directory that jobs get on their PYTHONPATH is on this host, for all to read",
        "torchrun finds our rendezvous there. Without it, it says that the backend is not "
        "registered.",
        _job_path,
        is_ours=True,
    ),
    Check(
        "plugin-on-nodes",
        Category.PLUGIN,
        "every compute node has the plugin and the job path",
        "A fragment on a node without them trains alone, or fails. What a node has can only be "
        "seen there.",
        _every_node,
        is_ours=True,
    ),
    Check(
        "pyxis",
        Category.PLUGIN,
        "pyxis, if it is used, passes SIGTERM into containers",
        "A fragment that is preempted gets SIGTERM and should leave at once. Before 0.24 pyxis "
        "kept it from what runs in the container, which then used all of KillWait.",
        _pyxis,
    ),
)
