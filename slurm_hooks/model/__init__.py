"""The shared vocabulary: frozen values that describe the cluster and the decisions about it."""

from slurm_hooks.model.cluster import (
    GRACE_CHECK,
    Claim,
    ClaimKind,
    Counted,
    Limit,
    Node,
    NodeState,
    Off,
    OtherStart,
    PlannedStart,
    Reservation,
    Slurm,
    Snapshot,
    Terms,
    Waiter,
)
from slurm_hooks.model.decision import (
    IdleNodes,
    Intent,
    JobPlan,
    Level,
    Plan,
    Solve,
    SolveStatus,
    Verb,
    by_job,
    may_train,
    merged,
    one_each,
)
from slurm_hooks.model.job import (
    NOT_LAUNCHED,
    NOT_MOVED,
    REFUSED,
    AvoidedNode,
    Fragment,
    FragmentId,
    MalleableJob,
    Mark,
    Needs,
    Request,
)
from slurm_hooks.model.reason import USABLE, Detail, Of, Reason, Verdict, Why
from slurm_hooks.model.resources import Resources, Slot
from slurm_hooks.model.speed import Counts, Curve, Learned, Pauses, Rate, Telemetry
from slurm_hooks.model.state import (
    BACK_STATES,
    ENDED_STATES,
    LIVE_STATES,
    OPEN_STATES,
    WAITING_STATES,
    FragmentState,
    Said,
    Wish,
)
