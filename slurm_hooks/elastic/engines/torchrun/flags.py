"""Read torchrun's command line and environment: whether this process is torchrun, whether it is
ours, and which setting of the user would keep it from our rendezvous.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slurm_hooks.protocol.engines import BACKENDS, ENGINES

_TORCHRUN = (("torch", "distributed", "run.py"), ("torch", "distributed", "launch.py"))
_STARTED = frozenset(row.name for row in ENGINES.values() if row.by_torchrun)
_SWITCHES = frozenset(
    {"--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank"}
)


def is_ours(env: Mapping[str, str]) -> bool:
    """Tell whether torchrun runs in a fragment whose training it is."""
    return env.get("PET_RDZV_BACKEND") in BACKENDS or (
        env.get("MALLEABLE_ENGINE", "") in _STARTED and bool(env.get("MALLEABLE_FRAGMENT"))
    )


def is_torchrun(argv: Sequence[str]) -> bool:
    """Tell whether this process was started as torchrun, to train and not to print its help.

    With `python -m torch.distributed.run` its name is the path of that module.
    """
    if not argv or "-h" in argv or "--help" in argv:
        return False
    own = Path(argv[0])
    return own.name == "torchrun" or own.parts[-3:] in _TORCHRUN


def overrides(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the user's setting that keeps torchrun from using this rendezvous, empty without such
    a setting.
    """
    given = dict(_flags(argv))
    if "--standalone" in given:
        return "--standalone"
    if env.get("PET_STANDALONE", "0") not in ("", "0"):
        return f"PET_STANDALONE={env['PET_STANDALONE']}"
    for name, value in (
        ("--rdzv-backend", given.get("--rdzv-backend", "")),
        ("PET_RDZV_BACKEND", env.get("PET_RDZV_BACKEND", "")),
    ):
        if value:
            return "" if value in BACKENDS else f"{name}={value}"
    return "unset PET_RDZV_BACKEND"


def _flags(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield torchrun's own flags with their values. The words after the script are not
    torchrun's.
    """
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        is_alone = equals or flag in _SWITCHES or (flag[1:2] != "-" and len(flag) > 2)
        yield flag, value if is_alone else next(words, "")
