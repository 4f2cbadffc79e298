"""Which group is to be made beside the one that stands, and which one has come back meanwhile?"""

from shardwright.api.record import PlanRecord
from shardwright.reconcile.decide import Decision
from shardwright.reconcile.derived import Derived
from shardwright.reconcile.pod_inputs import as_made
from shardwright.reconcile.refuge import come_back
from shardwright.reconcile.snapshot import Ask, Snapshot
from shardwright.rendering.names import GENERATION_MAX, base_name, generation_of
from shardwright.rendering.render import asked_of
from shardwright.resolving.intent import Replan
from shardwright.resolving.subject import Subject


def question_beside(
    derived: Derived, subject: Subject, record: PlanRecord, decision: Decision
) -> Ask | None:
    """Return the question for a place beside a group that goes elsewhere at once, or that is about
    to stop and may surge; None if there is none.
    """
    refused = derived.refused if _takes_refuge(subject, derived, record) else ()
    # One at a time: the GPUs that it leaves are the next one's place (ADR 3).
    group = next(iter((*refused, *decision.stopping)), None)
    if group is None or len(decision.groups) != len(record.plan.groups):
        return None
    generation = generation_of(decision.groups[group].name)[1]
    if generation >= GENERATION_MAX:
        return None
    leaving = frozenset({group} if refused else ())
    return Ask(on=record, lost=derived.lost, beside=(group, generation + 1), leaving=leaving)


def _takes_refuge(subject: Subject, derived: Derived, record: PlanRecord) -> bool:
    intent = subject.intent
    # In a queue the next generation would wait for the quota that the former one holds.
    moves = intent.scheduler != "Kueue" and intent.replan is not Replan.NEVER
    # The indices are those of the record that stands.
    return moves and not intent.plan_only and record == derived.record


def came_back(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord
) -> PlanRecord | None:
    """Return the record with a group planned where it serves again before its refuge was up, or
    None.
    """
    # One that is to restart in any case goes on as its next generation.
    if not derived.rules.keeps_templates or record != derived.record:
        return None

    def made_for(moved: PlanRecord, index: int) -> str:
        return asked_of(moved.plan, as_made(snapshot, derived, subject, moved), index)

    base, asked = base_name(snapshot.resource.owner.name), derived.rules.restart_asked
    return come_back(derived.observed, base, record, made_for, asked)
