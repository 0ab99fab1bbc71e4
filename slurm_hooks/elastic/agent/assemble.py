"""Build an agent from its parts. This is the same for every engine."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass

from slurm_hooks.elastic.agent.companion import Companion, Facts, WorldMaker
from slurm_hooks.elastic.agent.ending import Ending
from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.agent.membership import open_membership
from slurm_hooks.elastic.agent.old_jobs import remove_old_jobs_in_background
from slurm_hooks.elastic.agent.options import Options, identity
from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.agent.sight import Sight
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.mailbox import open_mailbox
from slurm_hooks.elastic.rendezvous.state import Member
from slurm_hooks.elastic.signals import SignalListener


@dataclass(frozen=True)
class Parts:
    """The parts of an agent that its engine uses. `options` are the options of its world."""

    options: Options
    me: Member
    session: Session
    signals: SignalListener
    forewarning: Forewarning
    companion: Companion
    ending: Ending


def assemble(
    job: Options,
    env: MutableMapping[str, str],
    signals: SignalListener,
    own_element: OwnElement,
    make_world: WorldMaker,
) -> Parts:
    """Return the parts of the agent with this environment, and put into `env` where its workers
    find the mailbox. Raises OptionError, DirectoryError, EngineError.
    """
    lease = Lease(env, job.notice_s, own_element.take_facts())
    me = identity(env, job.host, lease.ends)
    world = make_world(Facts(job, me, lease.wanted, signals, env))
    settings, companion = world.options, world.companion
    membership = open_membership(settings, me, signals, world.wanted)
    remove_old_jobs_in_background(env)
    mailbox = open_mailbox(env)
    forewarning = Forewarning(mailbox, settings.boundary_s)
    sight = Sight(mailbox, own_element, world.keep_state)
    session = Session(settings, membership, lease, signals, forewarning, own_element, sight)
    ending = Ending(settings, session, signals, own_element, companion)
    return Parts(settings, me, session, signals, forewarning, companion, ending)
