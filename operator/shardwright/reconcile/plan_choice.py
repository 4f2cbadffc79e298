"""Does the plan of record stand? A better node moves nothing, a flapping label disturbs nothing."""

from dataclasses import dataclass
from enum import StrEnum

from shardwright.api.record import PlanRecord
from shardwright.resolving.intent import Replan


class PlanChoice(StrEnum):
    """What becomes of the plan of record."""

    KEEP = "Keep"
    #: the number of groups is not what is wanted: add as many as have a place, or drop; move none
    RESCALE = "Rescale"
    #: some groups cannot go on where they are: they move, the others stay; then as RESCALE
    REHOUSE = "Rehouse"
    REPLAN = "Replan"
    COMPARE = "Compare"  #: all stays as it is; what would be better, or be made now, is said
    #: the plan of an earlier revision takes its place, with the groups that still stand by it
    RESTORE = "Restore"
    IMPROVE = "Improve"  #: a better plan takes its place if it is worth a restart of all groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The present request. Its hashes cover all that a plan depends on beside the cluster."""

    input_hash: str
    cut_hash: str
    replan: Replan
    replicas: int | None  # None: the plan says how many
    deploy: bool = False  # not only planned


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordState:
    """How the plan of record stands.

    ``leaving``: some of its groups must leave their nodes. ``has_its_gpus``: they are reserved or
    free; a plan that was only shown holds none. ``serves``: all of its groups do, and only then is
    a better plan looked for. ``due``: it has stood for long enough to give way to a better one.
    ``begun``: a group of it stands. ``startable``: the cluster serves what its pods need, or they
    stand. ``surpassed``: the cluster has by now what it was made without, to its loss.
    """

    leaving: bool
    has_its_gpus: bool = True
    serves: bool = False
    due: bool = False
    begun: bool = True
    startable: bool = True
    surpassed: bool = False


def choose(record: PlanRecord | None, wanted: Wanted, state: RecordState) -> PlanChoice:
    """Return what becomes of the plan of record; None: there is none that can be read."""
    if (
        record is None
        or record.cut_hash != wanted.cut_hash
        or (wanted.deploy and not record.plan.deployable)
    ):
        return PlanChoice.REPLAN
    # A plan that was only shown keeps nothing. Deployed as it was, it once reserved 16 GPUs on a
    # node of 8 (ADR 7).
    if wanted.deploy and not (state.has_its_gpus and state.startable):
        return PlanChoice.REPLAN
    if _costs_no_restart(wanted, state):
        return PlanChoice.REPLAN
    # A plan that lacks groups is asked for them whenever there may be room.
    whole = record.input_hash == wanted.input_hash and not record.plan.missing
    same = PlanChoice.KEEP if whole else PlanChoice.RESCALE
    if (
        not state.leaving
        and same is PlanChoice.KEEP
        and state.serves
        and wanted.replan is Replan.ALWAYS
    ):
        return PlanChoice.IMPROVE if state.due else PlanChoice.COMPARE
    if not state.leaving or wanted.replan is Replan.NEVER:
        return same
    # Groups that are no longer wanted go before others move.
    fewer = wanted.replicas is not None and wanted.replicas < len(record.plan.groups)
    return PlanChoice.RESCALE if fewer else PlanChoice.REHOUSE


def _costs_no_restart(wanted: Wanted, state: RecordState) -> bool:
    """Return whether there may be a better plan, and nothing restarts for it."""
    if wanted.replan is Replan.ALWAYS and not wanted.deploy:
        return True
    return state.surpassed and not state.begun and wanted.replan is not Replan.NEVER
