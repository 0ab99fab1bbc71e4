"""Check the SPANK plugin on this host, and list the other hosts to check."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_hooks.doctor.facts import CannotLook, Facts, PluginLine, Plugstack, known
from slurm_hooks.doctor.finding import Category, Check, Finding, Paste, error, note, warning
from slurm_hooks.model.moments import plural

JOB_PATH = "/usr/share/slurm-malleable/jobpath"
DIRECTORY = "%w/.malleable-%U/%C/%A"
PYXIS_PASSES_SIGTERM = (0, 24)


def our_line(directory: str) -> str:
    """The line of plugstack.conf for a Slurm with its plugins in that directory."""
    return (
        f"optional {directory}/malleable.so pythonpath={JOB_PATH} max_restarts=1000 dir={DIRECTORY}"
    )


def _plugstack(facts: Facts) -> Iterator[Finding]:
    stack = known(facts.plugstack)
    if stack.ours is None:
        yield error(
            f"{stack.path} has no line for malleable.so",
            Paste(stack.path, our_line(stack.directory)),
            advice="add it on every submit host and every compute node",
        )
        return
    yield from _line(stack.ours)


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
            advice="other users cannot use a directory that a user has created: write "
            f"dir={DIRECTORY}, or another path with %U, %C and %A",
        )


def _ours(facts: Facts) -> tuple[Plugstack, PluginLine]:
    """plugstack.conf and our line in it. Raises CannotLook without such a line."""
    stack = known(facts.plugstack)
    if stack.ours is None:
        raise CannotLook(f"{stack.path} has no line for the plugin")
    return stack, stack.ours


def _plugin_file(facts: Facts) -> Iterator[Finding]:
    stack, ours = _ours(facts)
    seen, path = ours.plugin_file, ours.plugin
    if seen is None:
        yield error(
            f"{path}, which {stack.path} names, is not on this host",
            advice="install the package slurm-malleable-slurm here",
        )
    elif not seen.is_for_all:
        yield error(
            f"{path} cannot be read by every user, so their sbatch has no --malleable",
            advice=f"chmod a+rX {path} and the directories above it",
        )


def _plugin_release(facts: Facts) -> Iterator[Finding]:
    slurm, (_stack, ours) = known(facts.slurm), _ours(facts)
    is_tried = ours.arguments.get("untested") == "use"  # the site has tested it
    if ours.tested and slurm.version[:2] not in ours.tested and not is_tried:
        names = ", ".join(f"{year}.{month:02d}" for year, month in ours.tested)
        yield error(
            f"{ours.plugin} was tested with Slurm {names}, not {slurm.value('SLURM_VERSION')}: it "
            "registers no option here",
            advice="upgrade the package slurm-malleable-slurm, or build the plugin for it "
            "(see Packages in the administrators' pages)",
        )


def _job_path(facts: Facts) -> Iterator[Finding]:
    stack, ours = _ours(facts)
    path, seen = ours.arguments.get("pythonpath"), ours.job_path_file
    if path is None:
        yield error(
            f"{ours.where.file}: our line has no pythonpath=",
            Paste(ours.where.file, our_line(stack.directory), instead=ours.where),
        )
    elif seen is None:
        yield error(
            f"{path}, which pythonpath= names, is not on this host",
            advice="install the package slurm-malleable-client here, or name a directory that all "
            "nodes share",
        )
    elif not seen.is_for_all:
        yield error(
            f"{path} cannot be read by every user", advice=f"chmod -R a+rX {path} and above it"
        )


def _every_node(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    nodes = len({words["NodeName"] for words in slurm.nodes})
    seen = f"doctor cannot check the {plural(nodes, 'compute node')} from here"
    configless = "configless nodes get plugstack.conf, but not the plugin itself"
    yield note(
        f"{seen}; {configless}" if slurm.is_configless else seen,
        advice="install the package slurm-malleable there for it, and run on each, for example "
        "with clush or pdsh: malleable doctor --node",
    )


def _pyxis(facts: Facts) -> Iterator[Finding]:
    stack = known(facts.plugstack)
    if not stack.pyxis:
        return
    version = stack.pyxis_version
    if version is None:
        yield note(
            f"{stack.pyxis}: its version cannot be read here",
            advice="pyxis before 0.24 does not pass SIGTERM into containers",
        )
    elif version < PYXIS_PASSES_SIGTERM:
        shown = ".".join(map(str, version))
        yield warning(
            f"{stack.pyxis} is version {shown}",
            advice="upgrade pyxis to 0.24 or newer, or set a low KillWait: only SIGKILL ends a "
            "training in a container",
        )


TABLE = (
    Check(
        "plugstack",
        Category.PLUGIN,
        "plugstack.conf of this host loads the plugin, as `optional`",
        "Without the plugin sbatch has no option --malleable, and a job on a node without it does "
        "not find its rendezvous. With `optional` a broken plugin costs only the option.",
        _plugstack,
        is_ours=True,
    ),
    Check(
        "plugin-file",
        Category.PLUGIN,
        "the plugin is on this host, and all users can read it",
        "If plugstack.conf names a missing file, sbatch silently has no option --malleable.",
        _plugin_file,
        is_ours=True,
    ),
    Check(
        "plugin-release",
        Category.PLUGIN,
        "the plugin on this host was tested with this release of Slurm",
        "The same plugin serves all releases on which it was tested. On any other release it does "
        "not work, without a message, so that an upgrade of Slurm breaks no sbatch.",
        _plugin_release,
        is_ours=True,
    ),
    Check(
        "job-path",
        Category.PLUGIN,
        "the directory for the PYTHONPATH of jobs is on this host, and all users can read it",
        "torchrun finds our rendezvous there. Without it torchrun reports that the backend is not "
        "registered.",
        _job_path,
        is_ours=True,
    ),
    Check(
        "plugin-on-nodes",
        Category.PLUGIN,
        "every compute node has the plugin and the job path",
        "A fragment on a node without them trains alone, or fails. Only the node itself can check "
        "them.",
        _every_node,
        is_ours=True,
    ),
    Check(
        "pyxis",
        Category.PLUGIN,
        "pyxis, if it is used, passes SIGTERM into containers",
        "A preempted fragment gets SIGTERM and should leave at once. Before 0.24 pyxis did not "
        "pass SIGTERM into the container, which then used all of KillWait.",
        _pyxis,
    ),
)
