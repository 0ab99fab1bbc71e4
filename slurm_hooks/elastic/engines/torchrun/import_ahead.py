"""Make the imports of a job's earlier processes in a warm worker, and notice which must wait.

A warm worker does not know its rank yet, and it runs before the program could set a variable. An
import that looks at such a variable would have another effect there. So would an import that makes
a CUDA context or starts a process. An import that fails may leave a part of itself behind. The
caller then starts again without it, in a new interpreter.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from dataclasses import replace
from typing import Any

from slurm_hooks.elastic.log import debug
from slurm_hooks.elastic.script.learned import Imports, own_modules

# torchrun sets these for each worker and round; all others must be as they were at the start.
_OF_THE_ROUND = frozenset(
    {"RANK", "GROUP_RANK", "NODE_RANK", "ROLE_RANK", "ROLE_NAME", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
    | {"WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    | {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "CUDA_VISIBLE_DEVICES"}
)
# They do not look at ranks during their import, or can be told the ranks afterwards. fsspec copies
# the environment, and takes names of its own from it.
LIBRARIES = frozenset(
    {"torch", "torchft", "torchvision", "torchaudio", "numpy", "scipy", "sklearn", "pandas", "PIL"}
    | {"matplotlib", "h5py", "zarr", "fsspec"}
    | {"lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities", "torchmetrics"}
    | {"transformers", "accelerate", "safetensors", "tokenizers"}
)
_OURS = __name__.partition(".")[0]
_KNOWN = LIBRARIES | {_OURS}
# Code that is not Python reads such a variable during an import, unseen. torch sets the first two
# itself, at the first use of CUDA (older releases) or of a compiler. Lightning's Trainer sets the
# third, and torch reads it when it is asked for CUDA.
_UNSEEN = re.compile(
    r"(?!(CUDA_MODULE_LOADING|TORCHINDUCTOR_CACHE_DIR|PYTORCH_NVML_BASED_CUDA_CHECK)\Z)"
    r"(G?OMP_|KMP_|MKL_|OPENBLAS_|CUDA|CUBLAS|CUDNN|HIP_|ROCR_|(PY)?TORCH|LD_|MALLOC_)"
)


class _Watch:
    """Sees how the environment is read. `name` is the module that is being imported. `reads_rank`:
    it asked for a variable of the round. `reads` are the `changed` variables that were read, with
    their modules.
    """

    def __init__(self, changed: tuple[str, ...]) -> None:
        self.name, self.reads_rank = "", False
        self.reads: list[tuple[str, str]] = []
        self._changed = frozenset(changed)

    def __enter__(self) -> _Watch:
        kind: Any = type(os.environ)
        self._plain = plain = kind.__getitem__

        def read(environ: Any, name: Any) -> Any:
            self._note(name)
            return plain(environ, name)

        kind.__getitem__ = read
        return self

    def __exit__(self, *_: object) -> None:
        kind: Any = type(os.environ)
        kind.__getitem__ = self._plain

    def _note(self, name: object) -> None:
        if not isinstance(name, str) or sys._getframe(2).f_code.co_name == "__iter__":
            return  # it looks through all variables, for names of its own
        if is_of_the_round(name):
            self.reads_rank = self.reads_rank or _reader() not in _KNOWN
        elif name in self._changed:
            self.reads.append((name, self.name))


def _reader() -> str:
    """Return the package whose import runs innermost, or ours: we act after some imports."""
    frame: Any = sys._getframe(3)
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package == _OURS or frame.f_code.co_name == "<module>":
            return package
        frame = frame.f_back
    return ""


def import_ahead(imports: Imports, own: str) -> Imports:
    """Import these modules, but those that a file in the directory `own` hides. Return `imports` if
    that has no other effect than in the real worker, else the imports to try instead.
    """
    began, own_before, has_child = dict(os.environ), set(own_modules()), _has_child()
    with _Watch(imports.changed) as watch:
        for name in imports.modules:
            top = name.partition(".")[0]
            if name in sys.modules or is_hidden(top, own):
                continue
            watch.name = name
            try:
                importlib.import_module(name)
            except (Exception, SystemExit) as error:
                debug(f"importing {name} in advance", error)
                return imports.without(name)
            if watch.reads_rank or _has_context() or (_has_child() and not has_child):
                debug(f"{name} must not be imported in advance")
                return imports.without(top)

    def is_unset(variable: str) -> bool:
        """The program changes it, not one of these imports."""
        return os.environ.get(variable) == began.get(variable)

    for variable, name in watch.reads:
        if is_unset(variable):
            debug(f"{name} reads {variable}, which the program changes")
            return imports.without(name.partition(".")[0])
    unseen = [v for v in imports.changed if _UNSEEN.match(v) and not is_of_the_round(v)]
    reasons = {*filter(is_unset, unseen), *own_modules()} - own_before
    if reasons:
        debug(f"no imports in advance, because of {sorted(reasons)}")
        return replace(imports, modules=())
    return imports


def is_of_the_round(variable: str) -> bool:
    """Tell whether torchrun sets this variable for each worker and round."""
    return variable in _OF_THE_ROUND or variable.startswith("TORCHELASTIC_")


def is_hidden(top: str, own: str) -> bool:
    """Tell whether a file or directory in `own` has the name of this package."""
    return any(os.path.lexists(os.path.join(own, top + end)) for end in ("", ".py"))


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _has_context() -> bool:
    is_made: Any = getattr(getattr(sys.modules.get("torch"), "cuda", None), "is_initialized", None)
    return bool(is_made and is_made())
