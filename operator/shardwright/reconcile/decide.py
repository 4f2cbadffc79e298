"""Which writes bring the observed objects closer to the desired ones? Create what is missing,
repair what is ours, prune what is surplus. It converges to no writes, and never touches an object
that another controller, or nobody, owns.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from shardwright.errors import Problem
from shardwright.planning.drain import step_of
from shardwright.reconcile.disruption import (
    Rejection,
    held_back,
    one_after_another,
    planned_nodes,
    rejected,
)
from shardwright.reconcile.drift import as_it_can_be, drifted_fields, is_in_the_way, template_hash
from shardwright.reconcile.group import (
    Group,
    LifeRules,
    as_it_stands,
    finds_no_place,
    former_generations,
    overdue,
)
from shardwright.reconcile.groups import GroupStep, next_step
from shardwright.reconcile.members import (
    GroupState,
    claim_templates,
    mounted_config_maps,
    mounted_secrets,
    peers_service_of,
)
from shardwright.reconcile.observed import (
    CONFIG_MAP,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Observed,
    controller,
    controller_uid,
    object_key,
)
from shardwright.reconcile.wording import name_conflict
from shardwright.reconcile.write_cause import WISHED, Origin, WriteCause, fields_named, is_undone
from shardwright.reconcile.writes import (
    Apply,
    Create,
    CreateKey,
    Delete,
    DryRunPod,
    ObjectKey,
    Patch,
    Why,
    Write,
    written_kind,
    written_name,
)
from shardwright.rendering.bundle import KubernetesObject, of_kind
from shardwright.rendering.gang_scheduling import pod_group_of
from shardwright.rendering.labels import GROUP
from shardwright.rendering.names import channel_template, generation_name, generation_of
from shardwright.rendering.pod_resources import grace_seconds

_ANY_RULES: Final = LifeRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Everything that shall exist, in order of creation, and the rules of its groups' life.

    ``keys`` are Secrets that only the kubelet reads. ``config`` is the ConfigMap that the spec
    takes its config from (empty: none): it is input, and never pruned.
    """

    owner_uid: str
    objects: Sequence[KubernetesObject]
    keys: Sequence[KubernetesObject] = ()
    config: str = ""
    rules: LifeRules = field(default_factory=LifeRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next writes, in order, and the facts for the status.

    ``conflicts`` are foreign objects under our names; ``leftovers`` (kind and name) await the
    garbage collector since an earlier ShardedModel of the same name. With either, groups are only
    kept alive. ``stopping`` are the indices of groups that these writes stop on purpose and that
    could surge first. ``rejection`` names the group because of which the wanted state is to be
    rolled back.
    """

    writes: tuple[Write, ...]
    groups: tuple[GroupState, ...]
    conflicts: tuple[Problem, ...] = ()
    leftovers: tuple[str, ...] = ()
    stopping: tuple[int, ...] = ()
    rejection: Rejection | None = None

    @property
    def wake_at(self) -> datetime | None:
        """Return when the first backoff or wait for a place ends, or None if none runs."""
        return min((group.look_at for group in self.groups if group.look_at), default=None)


def decide(
    desired: Desired, observed: Observed, now: datetime, most_moving: int | None = None
) -> Decision:
    """Return the next writes; none when all is as desired.

    ``most_moving`` is how many groups may be down on purpose at once across models (None: any
    number).
    """
    # Nothing is written beside a foreign object: half of a model's objects would serve with
    # somebody else's Service or scripts.
    if foreign := _foreign(desired, observed):
        known = KnownGroups(owner_uid=desired.owner_uid, rules=desired.rules)
        alive = keep_alive(observed, known, now, most_moving)
        return _beside(alive, foreign)
    wanted = [
        _group(content, observed, desired.rules)
        for content in of_kind(desired.objects, STATEFUL_SET)
    ]
    # Before the steps, so that a held group looks to everything below as if its pods were wanted.
    groups = held_back(wanted, now)
    former = _former_generations(groups, desired, observed, now)
    # While a group surges, no other may stop until its former generation is gone.
    most = 0 if any(former.values()) else desired.rules.max_unavailable
    steps = one_after_another(
        groups, [next_step(group, now) for group in groups], now, most, most_moving
    )
    needs = _Needs(desired, groups)
    lives = [
        needs.noted(_explained(write, group))
        for group, step in zip(groups, steps, strict=True)
        for write in step.writes
    ]
    kept = {*_kept_sets(groups, former, now), *_kept_beside_pods(observed, now)}
    surplus = _prune(desired, observed, kept, former)
    return Decision(
        writes=tuple(_in_order(desired, observed, lives, surplus)),
        groups=tuple(step.state for step in steps),
        stopping=_to_begin_beside(groups, steps) if desired.rules.max_surge else (),
        # Asked of the groups as wanted: a held group stays as it is and is no evidence against
        # them.
        rejection=rejected(wanted, now) if desired.rules.rolls_back else None,
    )


def _beside(
    alive: Decision, foreign: Iterable[tuple[KubernetesObject, KubernetesObject]]
) -> Decision:
    leftovers = []
    conflicts = []
    for live, content in foreign:
        if is_leftover(live, content):
            leftovers.append(" ".join(object_key(live)))
        else:
            conflicts.append(name_conflict(" ".join(object_key(live)), live))
    return replace(alive, conflicts=tuple(conflicts), leftovers=tuple(leftovers))


def _in_order(
    desired: Desired, observed: Observed, lives: Sequence[Write], surplus: Iterable[Write]
) -> Iterator[Write]:
    # Broken groups end first: no refused write may hold that up. Keys precede the pods that mount
    # them. Deletions come last, after their heirs.
    yield from (write for write in lives if _ends_what_is_broken(write))
    for content in desired.objects:
        if content["kind"] != STATEFUL_SET:
            yield from _repaired(content, desired.owner_uid, observed)
    yield from (write for write in lives if isinstance(write, DryRunPod))
    yield from _keys(desired, lives)
    yield from (
        write
        for write in lives
        if not (_ends_what_is_broken(write) or isinstance(write, DryRunPod))
    )
    yield from surplus


def _to_begin_beside(groups: Sequence[Group], steps: Sequence[GroupStep]) -> tuple[int, ...]:
    """Return the groups that are about to stop and may surge instead; a held group never does."""
    return tuple(
        index
        for index, (group, step) in enumerate(zip(groups, steps, strict=True))
        if step.planned and not group.hold
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGroups:
    """What is known of a model's groups while nobody knows the wanted ones.

    ``size`` is the pod count of a group at zero that does not remember its own (None: it stays at
    zero).
    """

    owner_uid: str
    rules: LifeRules
    size: int | None = None


def keep_alive(
    observed: Observed, known: KnownGroups, now: datetime, most_moving: int | None = None
) -> Decision:
    """Return the decision that keeps groups alive while nobody knows the wanted ones.

    A failing group still restarts as a whole, and a requested restart still goes through all
    groups; nothing else is created, changed or deleted. ``most_moving`` is as in :func:`decide`.
    """
    ours = [_as_it_is(live, observed, known) for live in observed.sets_of(known.owner_uid).values()]
    wanted = [
        next_step(group, now)
        if group.size
        # Nobody knows its number of pods, so it is shown and left at zero.
        else GroupStep(state=next_step(group, now).state)
        for group in ours
    ]
    steps = one_after_another(ours, wanted, now, known.rules.max_unavailable, most_moving)
    return Decision(
        writes=tuple(write for step in steps for write in step.writes),
        groups=tuple(step.state for step in steps),
    )


def _as_it_is(live: KubernetesObject, observed: Observed, known: KnownGroups) -> Group:
    stands = as_it_stands(live, known.size or 0)
    return replace(_group(stands, observed, known.rules), as_it_is=True)


def _ends_what_is_broken(write: Write) -> bool:
    """Return whether a write ends pods that serve nobody, so that no refused write may delay it."""
    return isinstance(write, Delete) or (
        # A rollout's stop ends a group that serves, so it waits for the objects of its next start.
        isinstance(write, Apply | Patch) and write.why in {Why.FAILURE, Why.CAUSE}
    )


def _explained(write: Write, group: Group) -> Write:
    """Return the stop of a group for a change, with what it is that changes."""
    if not (isinstance(write, Apply | Patch) and write.why is Why.ROLLOUT) or group.live is None:
        return write
    before, after = planned_nodes(group.live), planned_nodes(group.rendered)
    if before != after:
        moved = f"planned on {', '.join(sorted(after))} instead of {', '.join(sorted(before))}"
        return replace(write, cause=WriteCause(Origin.WORLD, moved))
    named = fields_named(drifted_fields(group.rendered["spec"], group.live["spec"]))
    # The same is asked of its pods: this release makes others of it, or the namespace has another
    # LimitRange.
    origin = Origin.WORLD if group.asks_the_same else Origin.WISH
    return replace(write, cause=WriteCause(origin, named))


class _Needs:
    def __init__(self, desired: Desired, groups: Sequence[Group]) -> None:
        self._config_maps: set[str] = set()
        self._secrets = frozenset(object_key(content) for content in desired.keys)
        self._had = {group.name: _had_secrets(group) for group in groups}
        self._of_group: dict[str, set[ObjectKey]] = {}
        for content in desired.objects:
            if content["kind"] == CONFIG_MAP:
                self._config_maps.add(content["metadata"]["name"])
            elif content["kind"] != STATEFUL_SET and (
                group := (content["metadata"].get("labels") or {}).get(GROUP)
            ):
                self._of_group.setdefault(group, set()).add(object_key(content))

    def noted(self, write: Write) -> Write:
        """Return a write with all objects that its pods would hang without."""
        if not isinstance(write, Create | Apply) or _ends_what_is_broken(write):
            return write
        # Without its peers' Service and its claims a pod finds no name and no device.
        own = self._of_group.get(write.content["metadata"]["labels"].get(GROUP, ""), set())
        mounted = self._config_maps.intersection(
            mounted_config_maps(write.content["spec"]["template"]["spec"])
        )
        secrets = self._secrets - self._had.get(written_name(write), frozenset())
        return replace(
            write, needs=write.needs | {*secrets, *own, *((CONFIG_MAP, name) for name in mounted)}
        )


def _had_secrets(group: Group) -> frozenset[ObjectKey]:
    # They are older than its template, so a quota that stops new Secrets must not stop it.
    if group.live is None or not group.remembered.ready_once:
        return frozenset()
    return frozenset(
        (SECRET, name) for name in mounted_secrets(group.live["spec"]["template"]["spec"])
    )


def _former_generations(
    groups: Sequence[Group], desired: Desired, observed: Observed, now: datetime
) -> dict[str, frozenset[str]]:
    return {
        group.name: former_generations(*generation_of(group.name), observed, desired.owner_uid, now)
        for group in groups
    }


def _kept_sets(
    groups: Sequence[Group], former: Mapping[str, Collection[str]], now: datetime
) -> Iterator[ObjectKey]:
    """Yield old sets to keep while their surge starts, unless it finds no place."""
    for group in groups:
        if (
            group.served_by
            # Available, not ready: the former generation answers until the next one has been ready
            # for minReadySeconds (ADR 19).
            and not group.available(now)
            and not finds_no_place(group, now)
        ):
            yield from ((STATEFUL_SET, name) for name in former[group.name])


def _kept_beside_pods(observed: Observed, now: datetime) -> Iterator[ObjectKey]:
    """Yield the objects that existing pods, and the pods of live templates, still need."""
    # A pod that is overdue, on a dead node for example, keeps nothing.
    members = [member for member in observed.members if not overdue(member, now)]
    there = {member.group for member in members}
    named: set[str] = set()
    for live in observed.sets.values():
        yield from _named_by(live)
        # Also while the group has no pod: its next ones could not be placed without these objects.
        named |= _beside_pods_of(live["spec"].get("template") or {})
    for key, live in observed.objects.items():
        group = (live["metadata"].get("labels") or {}).get(GROUP)
        names = {key[1], channel_template(key[1])}
        if group and key[0] != STATEFUL_SET and (group in there or names & named):
            yield key
    # A container whose mounted ConfigMap is gone never starts again.
    yield from ((CONFIG_MAP, name) for member in members for name in member.config_maps)


def _named_by(live: KubernetesObject) -> Iterator[ObjectKey]:
    # A kept template may have several pods where the new one has one.
    if peers := peers_service_of(live["spec"]):
        yield SERVICE, peers
    pod = (live["spec"].get("template") or {}).get("spec") or {}
    yield from ((CONFIG_MAP, name) for name in mounted_config_maps(pod))


def _beside_pods_of(template: KubernetesObject) -> frozenset[str]:
    """Return the PodGroup and claim templates without which none of a template's pods is placed."""
    return claim_templates(template.get("spec") or {}) | {pod_group_of(template)}


def _keys(desired: Desired, lives: Sequence[Write]) -> Iterator[Write]:
    # Only with a write that starts pods: the operator may not read Secrets, so each idle reconcile
    # would send a creation to hear 409.
    starts = [
        write.needs
        for write in lives
        if isinstance(write, Create | Apply) and not _ends_what_is_broken(write)
    ]
    asking = (write for write in lives if isinstance(write, DryRunPod))
    questions = {(written_kind(write), written_name(write)) for write in asking}
    # One that asks nobody starts in any case, and needs its key.
    asked = frozenset[ObjectKey]().union(*(needs & questions for needs in starts))
    waits = asked if all(needs & questions for needs in starts) else frozenset[ObjectKey]()
    if starts:
        yield from (CreateKey(content=content, asked=waits) for content in desired.keys)


def not_as_they_are(
    observed: Observed, owner_uid: str, objects: Sequence[KubernetesObject]
) -> tuple[str, ...]:
    """Return the StatefulSets with pods that these objects would change or remove."""
    templates = {
        content["metadata"]["name"]: template_hash(content)
        for content in of_kind(objects, STATEFUL_SET)
    }
    return tuple(
        name
        for name, live in observed.sets_of(owner_uid).items()
        # A StatefulSet at zero has no pods to end.
        if live["spec"].get("replicas") and templates.get(name) != template_hash(live)
    )


def standing_drain(observed: Observed, owner_uid: str) -> int:
    """Return the drain that the pods of a model have, 0 without any that a plan could have made."""
    for live in observed.sets_of(owner_uid).values():
        grace = live["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 0)
        drain = int(grace) - grace_seconds(0)
        # Anybody may have written it: only a value of ours is taken over.
        return drain if drain > 0 and drain == step_of(drain) else 0
    return 0


def standing_groups(
    observed: Observed, owner_uid: str, now: datetime, rules: LifeRules = _ANY_RULES
) -> tuple[GroupState, ...]:
    """Return the states of the existing groups, whatever is wanted now."""
    # With a requested restart all of them would show as stopping.
    rules = replace(rules, restart_asked="")
    ours = [
        replace(_group(live, observed, rules), as_it_is=True)
        for live in observed.sets_of(owner_uid).values()
    ]
    return tuple(next_step(group, now).state for group in ours)


def _group(content: KubernetesObject, observed: Observed, rules: LifeRules) -> Group:
    live = observed.objects.get(object_key(content))
    name = content["metadata"]["name"]
    former = _former(name, observed)
    return Group(
        rendered=as_it_can_be(content, live) if live else content,
        live=live,
        members=observed.members_of(name),
        rules=rules,
        former=former,
        former_members=observed.members_of(former["metadata"]["name"]) if former else (),
        kept_out=observed.kept_out.get(live["metadata"]["uid"]) if live else None,
        short_since=observed.short_since.get(live["metadata"]["uid"]) if live else None,
        crowded_out=generation_of(name)[0] in observed.crowded_out,
        nodes_in_provisioning=observed.nodes_in_provisioning.get(generation_of(name)[0]),
        ready_since=observed.ready_since.get(live["metadata"]["uid"]) if live else None,
        starting_since=observed.starting_since.get(live["metadata"]["uid"]) if live else None,
    )


def _former(name: str, observed: Observed) -> KubernetesObject | None:
    root, number = generation_of(name)
    return (
        # Only the one before can still serve: a group has at most two generations at a time (ADR
        # 3).
        observed.objects.get((STATEFUL_SET, generation_name(root, number - 1))) if number else None
    )


def _foreign(
    desired: Desired, observed: Observed
) -> list[tuple[KubernetesObject, KubernetesObject]]:
    """Return the foreign objects under our names, each with the object that we would have there."""
    pairs = ((observed.objects.get(object_key(content)), content) for content in desired.objects)
    return [
        (live, content)
        for live, content in pairs
        if live is not None and controller_uid(live) != desired.owner_uid
    ]


def is_leftover(live: KubernetesObject, content: KubernetesObject) -> bool:
    """Return whether a foreign object will go by itself: it is being deleted, or belonged to an
    earlier ShardedModel of this name.
    """
    # The garbage collector or a finalizer is at work; a conflict would send the user after nothing.
    if "deletionTimestamp" in live["metadata"]:
        return True
    theirs = controller(live)
    ours = controller(content)
    # All but the uid: a ShardedModel recreated under its name meets the objects of its predecessor
    # for a while.
    return all(theirs.get(field) == ours.get(field) for field in ("apiVersion", "kind", "name"))


def placed(content: KubernetesObject, owner_uid: str, observed: Observed) -> tuple[Write, ...]:
    """Return the write that one object needs: none if it is as rendered or not ours."""
    live = observed.objects.get(object_key(content))
    if live is None:
        return (Create(content=content),)
    # It cannot be recreated before it is gone; the event of its end wakes the model.
    if "deletionTimestamp" in live["metadata"] or controller_uid(live) != owner_uid:
        return ()
    drift = drifted_fields(content, live)
    if not drift:
        return ()
    undone = is_undone(content, live, drift)
    cause = WriteCause(Origin.UNDONE, fields_named(drift)) if undone else WISHED
    # With the uid, an object that somebody recreated in between is refused, not taken over.
    return (Apply(content=content, uid=live["metadata"]["uid"], fields=drift, cause=cause),)


def _repaired(content: KubernetesObject, owner_uid: str, observed: Observed) -> tuple[Write, ...]:
    """Return the write of an object beside the pods; one that cannot be patched is remade."""
    writes = placed(content, owner_uid, observed)
    live = observed.objects.get(object_key(content))
    stands = next(
        (
            write
            for write in writes
            if isinstance(write, Apply) and live and is_in_the_way(content, live, write.fields)
        ),
        None,
    )
    if live is None or stands is None:
        return writes
    return (replace(_delete(object_key(content), live), why=Why.DRIFT, cause=stands.cause),)


def _delete(key: ObjectKey, live: KubernetesObject) -> Delete:
    return Delete(
        kind=key[0],
        namespace=live["metadata"]["namespace"],
        name=key[1],
        uid=live["metadata"]["uid"],
    )


def _prune(
    desired: Desired,
    observed: Observed,
    kept: Collection[ObjectKey],
    former: Mapping[str, Collection[str]],
) -> tuple[Write, ...]:
    # A former generation goes only when the next one is there to remember its fate. Configs from
    # the hub go too: a rollback has its config in its revision.
    wanted = {object_key(content) for content in desired.objects}.union(
        kept, {(CONFIG_MAP, desired.config)}
    )
    heirs = {
        (STATEFUL_SET, name): frozenset({(STATEFUL_SET, group)})
        for group, names in former.items()
        for name in names
    }
    return tuple(
        replace(_delete(key, live), needs=heirs.get(key, frozenset()))
        for key, live in sorted(observed.objects.items())
        # By uid: the objects of a predecessor, or of somebody who copied our labels, are not ours.
        if key not in wanted
        and controller_uid(live) == desired.owner_uid
        and "deletionTimestamp" not in live["metadata"]
    )
