"""The commands of the fake Slurm: scontrol's verbs and scancel, as 22.05 takes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Callable, Optional

import fake_life
from fake_parts import FINISHED, Element
from slurm_hooks.slurm.text import expand, parse_limit

if TYPE_CHECKING:
    from fake_slurm import FakeSlurm

ENDED = "Job has already finished"
PENDING = "Job is pending execution"
NOT_RUNNING = "Job is not running"
UNKNOWN = "Invalid job id specified"
DENIED = "Access/permission denied"
_MINUTE = timedelta(minutes=1)
NO_LONGER_PENDING = "Job is no longer pending execution"
BAD_GRES = "Invalid GRES specification (with and without type identification)"
_OF_ONE = frozenset({"ReqNodeList", "NumNodes"})  # scontrol takes them for no range
_OF_FIRST = frozenset({"Gres", "TresPerNode"})  # of a range only the first element gets them
_OF_USERS = frozenset({"Comment", "ArrayTaskThrottle"})  # the rest job_submit refuses


def obey(slurm: FakeSlurm, words: list[str], user: str) -> list[str]:
    """Obey a line for scontrol. A failure for an element does not keep it from others."""
    verb, target, *rest = words
    if "[" in target and _OF_ONE & {word.partition("=")[0] for word in rest}:
        return [f"Invalid job ID {target}"]
    elements, faults = named(slurm, re.sub(r"(?i)^jobid=", "", target))
    kept = [word for word in rest if word.partition("=")[0] not in _OF_FIRST]
    for number, element in enumerate(elements):
        slurm.watch(verb, element, user)
        fault = _VERBS[verb](slurm, element, kept if number else rest, user)
        faults += [f"{element.name}: {fault}"] if fault else []
    return faults


def named(slurm: FakeSlurm, text: str) -> tuple[list[Element], list[str]]:
    """The elements that `7`, `7_3` or `7_[0-2,5]` means, and a line for each that is not there."""
    job, _, index = text.partition("_")
    if not index:
        elements = slurm.of(int(job))
        return elements, [] if elements else [f"{text}: {UNKNOWN}"]
    names = [f"{job}_{i}" for i in _indexes(index.strip("[]"))]
    missing = [f"{name}: {UNKNOWN}" for name in names if name not in slurm.elements]
    return [slurm.elements[name] for name in names if name in slurm.elements], missing


def _indexes(text: str) -> list[int]:
    ends = [part.partition("-") for part in text.split(",")]
    return [i for low, _, high in ends for i in range(int(low), int(high or low) + 1)]


def _update(slurm: FakeSlurm, element: Element, words: list[str], user: str) -> str:
    changes = dict(word.partition("=")[::2] for word in words)
    fault = _refusal(slurm, element, changes, user)
    if fault:
        return fault
    is_placed = changes.get("ReqNodeList", "n1") or "ExcNodeList" in changes
    assert is_placed, "an empty node list would let Slurm choose"
    element.is_split = True
    for key, value in changes.items():
        _CHANGES[key](slurm, element, value)
    return ""


def _refusal(slurm: FakeSlurm, element: Element, changes: dict[str, str], user: str) -> str:
    if element.state in FINISHED:
        return ENDED
    if user != "root" and not changes.keys() <= _OF_USERS:
        return DENIED
    named = (expand(changes.get(key, "")) for key in ("ReqNodeList", "ExcNodeList"))
    if not frozenset().union(*named) <= slurm.nodes.keys():
        return "Invalid node name specified"
    if changes.keys() & _SIZES.keys():
        if element.state != "PENDING":
            return NO_LONGER_PENDING
        assert element.part, "whole nodes have no size"
        if not changes.get("Gres", element.part.gpu).startswith(element.part.gpu):
            return BAD_GRES
    if "Partition" in changes and element.state != "PENDING":
        return NO_LONGER_PENDING
    if element.job in slurm.misfits and changes.keys() & {"ExcNodeList", "Partition"}:
        return "Requested partition configuration not available now"
    if "EndTime" in changes:
        if element.state != "RUNNING":
            return NOT_RUNNING
        if moment(slurm, changes["EndTime"]) <= slurm.now:
            return "Invalid time specified"
    return ""


def moment(slurm: FakeSlurm, text: str) -> int:
    """A time as scontrol reads it, in epoch seconds. `now` belongs to the host that it runs on."""
    later = re.fullmatch(r"now(?:\+(\d+)(?:seconds)?)?", text)
    if later:
        return slurm.now + int(later.group(1) or 0)
    epoch = re.fullmatch(r"uts(\d+)", text)
    return int(epoch.group(1)) if epoch else int(datetime.fromisoformat(text).timestamp())


def _limit(_slurm: FakeSlurm, element: Element, text: str) -> None:
    limit = parse_limit(text) if ":" in text else timedelta(minutes=int(text))
    assert limit is not None, "the fake knows no job without a limit"
    element.limit_min = -(-limit // _MINUTE)
    if element.state in ("RUNNING", "SUSPENDED") and element.start is not None:
        element.end = element.start + 60 * element.limit_min


def _end_time(slurm: FakeSlurm, element: Element, text: str) -> None:
    """The limit follows from the difference in minutes, as an unsigned number of 32 bits."""
    assert element.end is not None
    later_s = moment(slurm, text) - element.end
    element.end += later_s
    element.limit_min = (element.limit_min + int((later_s + 30) / 60)) % 2**32


def _nodes(_slurm: FakeSlurm, element: Element, text: str) -> None:
    element.asked = expand(text)


def _barred(_slurm: FakeSlurm, element: Element, text: str) -> None:
    element.barred = expand(text)


def _count(_slurm: FakeSlurm, element: Element, text: str) -> None:
    element.count = int(text.partition("-")[0])


def _start_time(slurm: FakeSlurm, element: Element, text: str) -> None:
    element.eligible = moment(slurm, text)


def _admin_comment(_slurm: FakeSlurm, element: Element, text: str) -> None:
    element.admin_comment = text


def _comment(_slurm: FakeSlurm, element: Element, text: str) -> None:
    element.comment = text


def _gres(_slurm: FakeSlurm, element: Element, text: str) -> None:
    assert element.part is not None
    element.part.tres, element.part.gpus = f"gres:{text}", int(text.rpartition(":")[2])


def _tres_per_node(_slurm: FakeSlurm, element: Element, text: str) -> None:
    """Slurm shows the value, but obeys it only with its prefix."""
    assert element.part is not None
    element.part.tres = text
    if text.startswith("gres:"):
        element.part.gpus = int(text.rpartition(":")[2])


def _count_of(name: str) -> Callable[[FakeSlurm, Element, str], None]:
    def change(_slurm: FakeSlurm, element: Element, text: str) -> None:
        setattr(element.part, name, int(text))

    return change


def _partition(slurm: FakeSlurm, element: Element, text: str) -> None:
    assert text in slurm.partitions
    element.partition = text


def _throttle(slurm: FakeSlurm, element: Element, text: str) -> None:
    slurm.job(element).throttle = int(text)


def _dependency(slurm: FakeSlurm, element: Element, text: str) -> None:
    slurm.job(element).is_dependent = text != ""


_SIZES: dict[str, Callable[[FakeSlurm, Element, str], None]] = {
    "Gres": _gres,
    "TresPerNode": _tres_per_node,
    "CpusPerTask": _count_of("cpus_per_task"),
    "NumCPUs": _count_of("cpus"),
    "MinCPUsNode": _count_of("min_cpus"),
    "MinMemoryNode": _count_of("memory_mib"),
}
_CHANGES: dict[str, Callable[[FakeSlurm, Element, str], None]] = {
    "AdminComment": _admin_comment,
    "Comment": _comment,
    "TimeLimit": _limit,
    "EndTime": _end_time,
    "ReqNodeList": _nodes,
    "ExcNodeList": _barred,
    "NumNodes": _count,
    "StartTime": _start_time,
    "ArrayTaskThrottle": _throttle,
    "Dependency": _dependency,
    "Partition": _partition,
    **_SIZES,
}


def _release(_slurm: FakeSlurm, element: Element, _words: list[str], user: str) -> str:
    if element.state in FINISHED:
        return ENDED
    if user != "root":
        return DENIED  # job_submit lets no user release a fragment
    if element.state == "SPECIAL_EXIT":
        element.state = "PENDING"
    element.hold, element.description, element.is_unfit, element.is_split = "", "", False, True
    element.exit_code = 0
    return ""


def _hold(_slurm: FakeSlurm, element: Element, _words: list[str], user: str) -> str:
    return _hold_as(element, "admin" if user == "root" else "user", user)


def _uhold(_slurm: FakeSlurm, element: Element, _words: list[str], user: str) -> str:
    return _hold_as(element, "user", user)


def _hold_as(element: Element, kind: str, user: str) -> str:
    """A running element goes on. Slurm's own text for a requeued element is kept.

    An operator's hold is not replaced by a user's hold.
    """
    if element.state in FINISHED:
        return ENDED
    if not element.is_held and element.state != "PENDING":
        element.eligible = None
    if user == "root" or not element.is_held:
        element.hold = kind
    return ""


def _requeue(slurm: FakeSlurm, element: Element, _words: list[str], _user: str) -> str:
    return _put_back(slurm, element, "REQUEUE")


def _requeuehold(slurm: FakeSlurm, element: Element, _words: list[str], _user: str) -> str:
    return _put_back(slurm, element, "REQUEUE_HOLD")


def _put_back(slurm: FakeSlurm, element: Element, how: str) -> str:
    """Cancelled elements come back as well, and so do elements that are still ending."""
    if element.state in ("PENDING", "SPECIAL_EXIT") or element.then in fake_life.BACK:
        return PENDING
    if element.state == "COMPLETING":
        element.then = how
    elif element.state in FINISHED:
        fake_life.requeue(slurm, element, is_held=how == "REQUEUE_HOLD")
    else:
        fake_life.end(slurm, element, how)
    return ""


def _suspend(_slurm: FakeSlurm, element: Element, _words: list[str], user: str) -> str:
    if user != "root":
        return DENIED
    if element.state != "RUNNING":
        return PENDING if element.state == "PENDING" else NOT_RUNNING
    element.state = "SUSPENDED"
    return ""


def _resume(_slurm: FakeSlurm, element: Element, _words: list[str], _user: str) -> str:
    """Resume an element, even on nodes that other jobs use by now."""
    if element.state != "SUSPENDED":
        return PENDING if element.state == "PENDING" else ENDED
    element.state, element.hold = "RUNNING", ""
    return ""


_VERBS: dict[str, Callable[[FakeSlurm, Element, list[str], str], str]] = {
    "update": _update,
    "release": _release,
    "hold": _hold,
    "uhold": _uhold,
    "requeue": _requeue,
    "requeuehold": _requeuehold,
    "suspend": _suspend,
    "resume": _resume,
}


def cancel(slurm: FakeSlurm, words: list[str], user: str) -> list[str]:
    """scancel: send a signal to running elements, or end them."""
    options = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
    faults: list[str] = []
    for target in (word for word in words if not word.startswith("--")):
        elements, missing = named(slurm, target)
        faults += [] if "--quiet" in options else missing
        for element in _in_state(elements, options.get("--state")):
            if "--signal" in options:
                _signal(slurm, element)
                continue
            slurm.watch("scancel", element, user)
            _cancel(slurm, element, is_whole="_" not in target)
    return faults


def _in_state(elements: list[Element], state: Optional[str]) -> list[Element]:
    return [e for e in elements if state is None or e.state == state.upper()]


def _signal(slurm: FakeSlurm, element: Element) -> None:
    if element.state == "RUNNING" and element.signalled is None:
        element.signalled = slurm.steady


def _cancel(slurm: FakeSlurm, element: Element, is_whole: bool) -> None:
    """An element in the array's common record leaves no trace, unless it is the last there."""
    if element.state in ("RUNNING", "SUSPENDED"):
        fake_life.end(slurm, element, "CANCELLED")
    elif element.state == "COMPLETING":
        element.then = "CANCELLED"
    elif element.state in ("PENDING", "SPECIAL_EXIT"):
        others = [e for e in slurm.of(element.job) if not e.is_split and e is not element]
        if not (is_whole or element.is_split) and others:
            del slurm.elements[element.name]
        element.state, element.end = "CANCELLED", slurm.now
