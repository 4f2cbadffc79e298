"""Going back where not all is as it was: hardware that is gone, revisions that are not kept,
requests for what there is not.
"""

from typing import Any

import pytest

from shardwright.reconcile.writes import DropRevision, KeepRevision
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.changed_engines import GOOD, HANGS, Cluster
from tests.support.going_back import (
    OTHER,
    ROLL_BACK,
    SETTLED,
    ask,
    condition,
    no_way_back,
    ready,
    revisions,
    rolled_back,
    serving,
    until_it_serves,
    variables,
)
from tests.support.small_cluster import DROPPED, Refuses

H200 = {"placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"}}}
H100 = {"placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}}


def products(operator: Operator) -> set[str]:
    """Return of which kind the nodes are that groups stand on."""
    return {
        str(pod["spec"].get("nodeName")).partition("-")[0] for pod in operator.cluster.pods.values()
    }


class TestHardwareThatIsGone:
    """A model that has served on H100 serves on H200 now, and there is no H100 any more."""

    def moved(self, first: dict[str, Any], *, gone: bool = True) -> Operator:
        operator = serving(1, **ONE_NODE, **first)
        operator.cluster.set_node("h200-0", product="NVIDIA-H200")
        operator.edit(engine=GOOD, **H200)
        operator.run(SETTLED)
        assert (revisions(operator), products(operator)) == ([(1, False), (2, True)], {"h200"})
        if gone:
            operator.cluster.delete_node("h100-0")
        else:
            operator.cluster.others["h100-0"] = 8
        operator.cluster.version += 1
        return operator

    def test_what_was_asked_for_then_is_planned_anew_on_what_there_is(self) -> None:
        operator = self.moved({})
        ask(operator, "1")
        operator.run(SETTLED)
        assert (ready(operator), rolled_back(operator)) == (("True", "Serving"), ("True", "Asked"))
        assert (products(operator), set(variables(operator).values())) == ({"h200"}, {None})

    def test_a_change_that_does_not_come_up_is_taken_back_to_it_all_the_same(self) -> None:
        operator = serving(1, **ONE_NODE, rollout=ROLL_BACK)
        operator.cluster.set_node("h200-0", product="NVIDIA-H200")
        operator.edit(engine=HANGS, **H200)
        operator.run(200)
        operator.cluster.delete_node("h100-0")
        operator.run(SETTLED)
        assert (ready(operator), rolled_back(operator)) == (
            ("False", "RolledBack"),
            ("True", "ProgressDeadlineExceeded"),
        )
        assert (products(operator), set(variables(operator).values())) == ({"h200"}, {None})

    @pytest.mark.parametrize(
        ("gone", "reason"), [(True, "NothingFits"), (False, "InsufficientCapacity")]
    )
    def test_where_it_has_no_place_what_runs_goes_on_and_the_way_out_is_said(
        self,
        gone: bool,  # noqa: FBT001
        reason: str,
    ) -> None:
        operator = self.moved(H100, gone=gone)
        ask(operator, "1")
        operator.run(SETTLED)
        way_out = (
            "running groups are kept; change the spec, or retry it with 'kubectl shardwright "
            "rollout retry'"
        )

        assert (ready(operator), rolled_back(operator)) == (("False", reason), ("True", "Asked"))
        assert list(operator.cluster.serving()) == ["llama-0"]
        assert set(variables(operator).values()) == {"INFO"}
        assert condition(operator, "Ready")["message"].endswith(
            f"; revision 1, which is being restored, needs this: {way_out}"
        )
        assert condition(operator, "RolledBack")["message"].endswith(
            f" is to run in place of the spec, as asked, and has no place: {way_out}"
        )

        ask(operator, "spec@1")
        operator.run(SETTLED)
        assert (ready(operator), rolled_back(operator)) == (("True", "Serving"), ("False", "Idle"))


class TestRevisionsThatAreRefused:
    def four_specs(self, cluster: Cluster) -> Operator:
        """Return an operator of a model that has served with four specs."""
        cluster.add_nodes(1)
        operator = until_it_serves(Operator(cluster, {**ONE_NODE}))
        for engine in (GOOD, OTHER, {"env": [{"name": "NCCL_DEBUG", "value": "ABORT"}]}):
            operator.edit(engine=engine)
            operator.run(400)
        return operator

    def test_a_revision_that_is_refused_is_said_and_kept_once_it_is_let_in(self) -> None:
        cluster = Cluster()
        cluster.add_nodes(1)
        operator = until_it_serves(Operator(cluster, {**ONE_NODE}))
        cluster.refuses.append(Refuses(kind="ControllerRevision"))
        operator.edit(engine=GOOD)
        operator.run(400)

        assert (ready(operator), no_way_back(operator)) == (
            ("True", "Serving"),
            ("True", "RevisionRefused"),
        )
        assert condition(operator, "NoWayBack")["message"] == (
            "what all groups serve with cannot be kept as a revision: exceeded quota: objects, "
            "a rollback would restore revision 1; fix the cause that is named; it is tried again"
        )
        assert revisions(operator) == [(1, False)]

        cluster.refuses.clear()
        operator.run(400)
        assert (no_way_back(operator), revisions(operator)) == (
            ("False", "Idle"),
            [(1, False), (2, True)],
        )

    def test_a_revision_whose_deletion_is_refused_is_named_until_it_goes(self) -> None:
        cluster = Cluster()
        cluster.refuses.append(Refuses(kind=DROPPED, message="denied by policy"))
        operator = self.four_specs(cluster)

        assert (ready(operator), no_way_back(operator)) == (
            ("True", "Serving"),
            ("True", "RevisionRefused"),
        )
        assert [number for number, _ in revisions(operator)] == [2, 3, 4]
        assert (len(operator.status["surplusRevisions"]), len(cluster.revisions)) == (1, 4)
        assert "cannot be deleted: denied by policy" in condition(operator, "NoWayBack")["message"]

        cluster.refuses.clear()
        operator.run(400)
        assert (no_way_back(operator), len(cluster.revisions)) == (("False", "Idle"), 3)
        assert "surplusRevisions" not in operator.status

    def test_the_oldest_goes_only_when_the_newest_is_kept(self) -> None:
        cluster = Cluster()
        operator = self.four_specs(cluster)
        cluster.refuses.append(Refuses(kind="ControllerRevision"))
        operator.edit(engine={})
        operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "ERROR"}]})
        operator.run(400)
        assert ([number for number, _ in revisions(operator)], len(cluster.revisions)) == (
            [2, 3, 4],
            3,
        )
        assert sum(isinstance(write, DropRevision) for write in operator.written) == 1
        assert sum(isinstance(write, KeepRevision) for write in operator.written) == 4


class TestARequestForWhatThereIsNot:
    def asked(self, request_: str) -> Operator:
        operator = serving(1, **ONE_NODE)
        ask(operator, request_)
        operator.run(60)
        return operator

    @pytest.mark.parametrize("request_", ["2", "7@now", "the one before", "-1"])
    def test_a_request_for_an_unknown_revision_is_answered_once_and_shown_while_it_stands(
        self, request_: str
    ) -> None:
        operator = self.asked(request_)
        written = list(operator.written)
        operator.run(SETTLED)
        assert operator.written == written
        assert (ready(operator), no_way_back(operator)) == (
            ("True", "Serving"),
            ("True", "RevisionUnknown"),
        )
        assert condition(operator, "NoWayBack")["message"].startswith(
            f"metadata.annotations: shardwright.io/rollback-to: '{request_.partition('@')[0]}' "
            "names no revision that existed when it was set; there are 1; ask for an existing one"
        )

    def test_a_later_revision_of_that_number_is_not_what_was_asked_for(self) -> None:
        operator = self.asked("2")
        operator.edit(engine=GOOD)
        operator.run(400)
        operator.edit(engine=OTHER)
        operator.run(400)
        assert (revisions(operator)[-1], no_way_back(operator)) == (
            (3, True),
            ("True", "RevisionUnknown"),
        )
        assert set(variables(operator).values()) == {"VERSION"}

        ask(operator, "2@again")
        operator.run(400)
        assert (rolled_back(operator), set(variables(operator).values())) == (
            ("True", "Asked"),
            {"INFO"},
        )

    def test_the_end_of_the_annotation_is_its_end(self) -> None:
        operator = self.asked("2")
        ask(operator, None)
        operator.run(60)
        assert rolled_back(operator) == ("False", "Idle")
