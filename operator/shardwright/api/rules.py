"""Rules between fields: one table for the API server (CEL) and for us (predicates).

Each rule names its object, says in its message the field, the limit and the way out, and holds one
condition twice. A test wants the same verdict of both on the same resources.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from shardwright.api import disaggregation, routing, spec
from shardwright.api import weights_source as source
from shardwright.api.parts import LABEL_KEY, LABEL_KEY_MAX_LENGTH, Rule, unsaid
from shardwright.api.pod_spec import POD_RULES, keys_are_label_keys
from shardwright.api.scaling import bounds_are_in_order, may_sleep
from shardwright.api.spec import (
    Adapter,
    Budget,
    DraftHead,
    Parallelism,
    Spec,
    context_divides_tensor,
    delays_grow,
    every_key_needs_exists,
    exists_has_no_value,
    experts_are_cut_as_the_engine_can,
    is_paired,
    kueue_has_a_queue,
    partition_has_every_stage,
    queue_has_a_scheduler,
    scheduler_is_a_plugin,
    scheduler_is_not_kai,
    seconds_need_no_execute,
)
from shardwright.api.weights_source import Weights
from shardwright.engines.environment import NEVER, NEVER_PATTERN
from shardwright.engines.registry import ENGINES
from shardwright.errors import Problem


def broken_rules(spec: Spec) -> tuple[Problem, ...]:
    """Return one problem for every broken rule, in the order of the table."""
    return tuple(
        Problem(
            code=rule.code,
            path=f"{path}{rule.field}",
            what=rule.figures(value) if rule.figures else rule.message,
        )
        for rule in RULES
        for path, value in _located(spec, rule.path)
        if not rule.holds(value)
    )


_ONE_STAGE: Final = (
    "!has(self.parallelism) || ((!has(self.parallelism.pipeline) || "
    "self.parallelism.pipeline == 1) && (!has(self.parallelism.partition) || "
    "size(self.parallelism.partition) <= 1))"
)

_UNSPLIT: Final = "!has(self.phase) || self.phase == 'Whole'"


def _located(spec: Spec, path: str) -> Iterator[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("spec", spec)]
    for step in path.split(".")[1:]:
        name, is_list = step.removesuffix("[]"), step.endswith("[]")
        children = [(f"{at}.{name}", getattr(value, _attribute(name))) for at, value in found]
        found = [(at, value) for at, value in children if value is not None]
        if is_list:
            found = [
                (f"{at}[{index}]", item) for at, value in found for index, item in enumerate(value)
            ]
    yield from found


def _attribute(alias: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in alias)


def _request_fits_model_length(spec: Spec) -> bool:
    longest, load = spec.engine.max_model_len, spec.workload
    return longest is None or longest >= load.input_tokens + load.output_tokens


def _lengths_in_figures(spec: Spec) -> str:
    inputs, outputs = spec.workload.input_tokens, spec.workload.output_tokens
    return (
        f"{spec.engine.max_model_len:,} must be at least {inputs + outputs:,} "
        f"(inputTokens {inputs:,} + outputTokens {outputs:,}); raise maxModelLen or "
        "lower the other two"
    )


def _draft_is_read_whole(spec: Spec) -> bool:
    speculation = spec.engine.speculation
    looked_up = speculation is None or speculation.method == "PromptLookup"
    return looked_up or spec.model.load_format != "ShardedState"


def _fill_has_a_budget(budget: Budget) -> bool:
    return not budget.fill or budget.gpus is not None or budget.nodes is not None


def _fill_chooses_the_replicas(spec: Spec) -> bool:
    return spec.budget is None or not spec.budget.fill or not spec.replicas


def _within_gpu_budget(spec: Spec) -> bool:
    return _fits_gpu_budget(spec, 1 if spec.replicas is None else spec.replicas)


def _most_within_gpu_budget(spec: Spec) -> bool:
    return spec.scaling is None or _fits_gpu_budget(spec, spec.scaling.max_replicas)


def _fits_gpu_budget(spec: Spec, replicas: int) -> bool:
    if spec.budget is None or spec.budget.gpus is None:
        return True
    pins = spec.parallelism or unsaid(Parallelism)
    gpus = (pins.tensor or 1) * (pins.pipeline or 1) * (pins.data_parallel_attention or 1)
    return gpus * replicas <= spec.budget.gpus


def _is_awake_or_routed(spec: Spec) -> bool:
    routed = spec.routing is not None and spec.routing.mode == "Router"
    return routed or not may_sleep(spec.scaling)


def _is_filled_or_scaled(spec: Spec) -> bool:
    return spec.scaling is None or spec.budget is None or not spec.budget.fill


def _is_short_enough(part: Weights | Adapter | DraftHead) -> bool:
    return source.is_short_enough(part.uri)


_SHORT_ENOUGH: Final = (
    "!has(self.uri) || (self.uri.startsWith('pvc://') ? "
    f"size(self.uri.split('/')[2]) <= {source.CLAIM_MAX_LENGTH} && size(self.uri) - "
    "size(self.uri.split('/')[2]) <= "
    f"{source.URI_MAX_LENGTH - source.CLAIM_MAX_LENGTH} : self.uri.startsWith('oci://') ? "
    f"size(self.uri) <= {len('oci://') + source.IMAGE_MAX_LENGTH} : "
    f"size(self.uri) <= {source.BUCKET_MAX_LENGTH})"
)

_OVER_RAY: Final = ", ".join(f"'{name}'" for name, one in ENGINES.items() if one.over_ray)
_MIXING: Final = ", ".join(f"'{name}'" for name, one in ENGINES.items() if one.mixes_expert_cuts)

_WHOLE: Final = (
    "!has(self.disaggregation) || !has(self.disaggregation.mode) || "
    "self.disaggregation.mode == 'Off'"
)
_NOT_APART: Final[tuple[tuple[str, str, str, Callable[[Spec], bool]], ...]] = (
    (
        "engine.kvOffload",
        "has(self.engine) && has(self.engine.kvOffload)",
        "an engine has one connector for K/V",
        lambda spec: spec.engine.kv_offload is None,
    ),
    (
        "engine.speculation",
        "has(self.engine) && has(self.engine.speculation)",
        "nobody has tried drafts whose K/V comes from another group",
        lambda spec: spec.engine.speculation is None,
    ),
    (
        "model.adapters",
        "has(self.model.adapters) && size(self.model.adapters) > 0",
        "nobody has tried K/V of adapters from another group",
        lambda spec: not spec.model.adapters,
    ),
    (
        "model.unproven",
        "has(self.model.unproven)",
        "nothing is known of its speed",
        lambda spec: spec.model.unproven is None,
    ),
    (
        "scaling",
        "has(self.scaling)",
        "nothing scales the halves of a pair together",
        lambda spec: spec.scaling is None,
    ),
    (
        "budget.fill",
        "has(self.budget) && has(self.budget.fill) && self.budget.fill",
        "the load says how many units there are",
        lambda spec: spec.budget is None or not spec.budget.fill,
    ),
)
"""What a spec may not have where prompts and answers may be put apart, in CEL, why, and for us."""


def _is_whole_or(without: Callable[[Spec], bool], spec: Spec) -> bool:
    return not is_paired(spec) or without(spec)


RULES: Final = (
    Rule(
        code="ConfigTwice",
        path="spec.model",
        field=".configMapRef",
        cel="!(has(self.config) && has(self.configMapRef))",
        message="config and configMapRef must not both be set; remove one of them",
        holds=spec.has_one_source_of_config,
    ),
    Rule(
        code="RevisionWithoutHub",
        path="spec.model",
        field=".revision",
        cel="!has(self.revision) || !has(self.weights) || !has(self.weights.uri) || "
        "self.weights.uri.startsWith('hf://')",
        message="revision must not be set with a weights.uri other than hf://: it names a "
        "commit on the hub; remove revision",
        holds=spec.revision_is_of_the_hub,
    ),
    Rule(
        code="WeightsOfAnotherModel",
        path="spec.model",
        field=".weights.uri",
        cel="!has(self.weights) || !has(self.weights.uri) || "
        "!self.weights.uri.startsWith('hf://') || self.weights.uri == 'hf://' + self.id",
        message="weights.uri must be hf:// and the id of the model: the hub has both under one "
        "name; correct it, or remove uri",
        holds=spec.hub_has_the_model,
    ),
    *(
        Rule(
            code="TooLong",
            path=path,
            field=".uri",
            cel=_SHORT_ENOUGH,
            message=f"{uri} must have at most {source.CLAIM_MAX_LENGTH} characters of a claim and "
            f"{source.FOLDER_MAX_LENGTH:,} of a folder after pvc://, {source.IMAGE_MAX_LENGTH} "
            f"after oci://, and {source.BUCKET_MAX_LENGTH:,} in all for a bucket; shorten it",
            holds=_is_short_enough,
        )
        for path, uri in (
            ("spec.model.weights", "weights.uri"),
            ("spec.model.adapters[]", "uri of an adapter"),
            ("spec.engine.speculation.head", "head.uri"),
        )
    ),
    Rule(
        code="WeightsSettings",
        path="spec.model.weights",
        field=".cache",
        cel="!has(self.cache) || !has(self.uri) || self.uri.startsWith('hf://')",
        message="cache must come with a uri hf://, which is the default: it keeps downloads from "
        "the hub; remove cache or correct uri",
        holds=source.cache_is_of_the_hub,
    ),
    Rule(
        code="WeightsSettings",
        path="spec.model.weights",
        field=".objectStore",
        cel="!has(self.objectStore) || (has(self.uri) && self.uri.matches('^(s3|gs|az)://'))",
        message="objectStore must come with a uri s3://, gs:// or az://: it says how a bucket is "
        "read; remove objectStore or correct uri",
        holds=source.store_is_of_a_bucket,
    ),
    Rule(
        code="WeightsSettings",
        path="spec.model.weights",
        field=".image",
        cel="!has(self.image) || (has(self.uri) && self.uri.startsWith('oci://'))",
        message="image must come with a uri oci://: it says how an image is read; remove image or "
        "correct uri",
        holds=source.image_is_mounted,
    ),
    Rule(
        code="WeightsSecret",
        path="spec.model.weights",
        field=".secretRef",
        cel="!has(self.secretRef) || !has(self.uri) || self.uri.startsWith('hf://') || "
        "(self.uri.matches('^(s3|az)://') && !has(self.secretRef.key))",
        message="secretRef must come with a uri hf://, s3:// or az://, and its key with hf:// "
        "alone; gs:// takes the identity of pod.serviceAccountName: with HMAC keys use s3:// and "
        "endpoint https://storage.googleapis.com",
        holds=source.secret_is_of_the_address,
    ),
    Rule(
        code="StoreNotStreamed",
        path="spec.model",
        field=".loadFormat",
        cel="!has(self.weights) || !has(self.weights.uri) || "
        "!self.weights.uri.matches('^(s3|gs|az)://') || !has(self.loadFormat) || "
        "self.loadFormat in ['Auto', 'RunAIStreamer']",
        message="loadFormat must be Auto or RunAIStreamer with a weights.uri s3://, gs:// or "
        "az://: nothing else reads a bucket; remove loadFormat",
        holds=spec.store_is_streamed,
    ),
    Rule(
        code="StoreOfS3",
        path="spec.model.weights",
        field=".objectStore",
        cel="!has(self.objectStore) || (has(self.uri) && self.uri.startsWith('s3://')) || "
        "!(has(self.objectStore.endpoint) || has(self.objectStore.region) || "
        "has(self.objectStore.addressing) || has(self.objectStore.caConfigMapRef))",
        message="objectStore must have endpoint, region, addressing and caConfigMapRef only with "
        "a uri s3://; remove them",
        holds=source.is_of_s3_alone,
    ),
    Rule(
        code="StoreAccount",
        path="spec.model.weights",
        field=".objectStore.account",
        cel="(has(self.uri) && self.uri.startsWith('az://')) == "
        "(has(self.objectStore) && has(self.objectStore.account))",
        message="account must be set with a uri az://, and with no other: it is the storage "
        "account of Azure; set or remove it",
        holds=source.account_is_of_azure,
    ),
    Rule(
        code="CacheKind",
        path="spec.model.weights.cache",
        field="",
        cel="has(self.claimName) != has(self.storage)",
        message="cache must have exactly one of claimName and storage; set one, or remove cache "
        "to download at every start",
        holds=source.has_one_kind_of_cache,
    ),
    Rule(
        code="CacheClass",
        path="spec.model.weights.cache",
        field=".storageClassName",
        cel="!has(self.storageClassName) || has(self.storage)",
        message="storageClassName must come with storage: "
        "a claim that exists has its class; remove it",
        holds=source.class_is_of_own_claims,
    ),
    Rule(
        code="ShardsWithoutClaim",
        path="spec.model",
        field=".loadFormat",
        cel="!has(self.loadFormat) || self.loadFormat != 'ShardedState' || "
        "(has(self.weights) && has(self.weights.uri) && "
        "self.weights.uri.matches('^(pvc|oci)://'))",
        message="loadFormat ShardedState must come with a weights.uri pvc:// or oci://: the hub "
        "has no such files; set one of them",
        holds=spec.shards_lie_where_they_can,
    ),
    Rule(
        code="AdapterNameTaken",
        path="spec.model",
        field=".adapters",
        cel="!has(self.adapters) || self.adapters.all(item, item.name != (has(self.servedName) ? "
        "self.servedName : self.id))",
        message="adapters must not have the name of the model (servedName, else id); give the "
        "adapter another name",
        holds=spec.adapters_have_names_of_their_own,
    ),
    Rule(
        code="RankWithoutAdapters",
        path="spec.model",
        field=".maxAdapterRank",
        cel="!has(self.maxAdapterRank) || (has(self.adapters) && size(self.adapters) > 0)",
        message="maxAdapterRank must come with adapters, "
        "whose slots it sizes; set adapters or remove it",
        holds=spec.rank_is_of_adapters,
    ),
    Rule(
        code="EnvironmentForbidden",
        path="spec.engine.env[]",
        field=".name",
        cel=f"!self.name.matches('^(?:{NEVER_PATTERN})$') && !(self.name in "
        f"[{', '.join(map(repr, sorted(NEVER)))}])",
        message="env must not name a variable that the operator sets, that opens the server, "
        "or that changes how programs start "
        "(LD_..., PYTHON...); remove it, a token goes to "
        "spec.model.weights.secretRef, an API key to "
        "spec.engine.apiKeySecretRef",
        holds=spec.may_be_set,
    ),
    Rule(
        code="RayWithoutVLLM",
        path="spec.engine",
        field=".executor",
        cel=f"!has(self.executor) || self.executor != 'Ray' || self.name in [{_OVER_RAY}]",
        message="executor Ray must come with name vLLM: no other engine is rendered for it; "
        "remove executor or use vLLM",
        holds=spec.ray_is_for_vllm,
    ),
    Rule(
        code="RequestsExceedModelLength",
        path="spec",
        field=".engine.maxModelLen",
        cel="!has(self.engine.maxModelLen) || self.engine.maxModelLen >= "
        "self.workload.inputTokens + self.workload.outputTokens",
        message="engine.maxModelLen must be at least workload.inputTokens + outputTokens; raise "
        "maxModelLen or lower the other two",
        holds=_request_fits_model_length,
        figures=_lengths_in_figures,
    ),
    Rule(
        code="ArrivalTwice",
        path="spec.workload",
        field=".requestsPerSecond",
        cel="!(has(self.concurrency) && has(self.requestsPerSecond))",
        message="requestsPerSecond and concurrency must not both be set: each says how requests "
        "arrive; remove one of them",
        holds=spec.one_way_of_arrival,
    ),
    Rule(
        code="HeadOfMethod",
        path="spec.engine.speculation",
        field=".head",
        cel="has(self.head) == (self.method in ['EAGLE3', 'DraftModel'])",
        message="head must be set with methods EAGLE3 and "
        "DraftModel, and with no other; set or remove it",
        holds=spec.has_a_head_where_one_drafts,
    ),
    Rule(
        code="DraftOfShards",
        path="spec",
        field=".engine.speculation",
        cel="!has(self.model.loadFormat) || self.model.loadFormat != 'ShardedState' || "
        "!has(self.engine.speculation) || self.engine.speculation.method == 'PromptLookup'",
        message="engine.speculation must not be set with model.loadFormat ShardedState, but for "
        "looking up the prompt: the engine would read the drafter that way, too; use another "
        "loadFormat",
        holds=_draft_is_read_whole,
    ),
    Rule(
        code="ExpertNotTensor",
        path="spec",
        field=".parallelism.expert",
        cel="!has(self.parallelism) || !has(self.parallelism.expert) || self.parallelism.expert "
        f"== 1 || (has(self.engine) && has(self.engine.name) && self.engine.name in [{_MIXING}] "
        "&& has(self.parallelism.tensor) && has(self.parallelism.dataParallelAttention) ? "
        "(self.parallelism.tensor * self.parallelism.dataParallelAttention) % "
        "self.parallelism.expert == 0 : "
        f"has(self.engine) && has(self.engine.name) && self.engine.name in [{_MIXING}] || "
        "(has(self.parallelism.tensor) && has(self.parallelism.dataParallelAttention) ? "
        "self.parallelism.expert == "
        "self.parallelism.tensor * self.parallelism.dataParallelAttention : "
        "self.parallelism.expert % ((has(self.parallelism.tensor) ? self.parallelism.tensor : 1) "
        "* (has(self.parallelism.dataParallelAttention) ? "
        "self.parallelism.dataParallelAttention : 1)) == 0))",
        message="expert must be 1 or equal to tensor x dataParallelAttention, with TensorRTLLM "
        "and SGLang also a divisor of that; set one of these, "
        "or remove expert to have it planned",
        holds=experts_are_cut_as_the_engine_can,
    ),
    Rule(
        code="ContextNotDivisor",
        path="spec.parallelism",
        field=".context",
        cel="!has(self.context) || !has(self.tensor) || self.tensor % self.context == 0",
        message="context must divide tensor, whose ranks share the K/V; set a divisor, or remove "
        "context to have it planned",
        holds=context_divides_tensor,
    ),
    Rule(
        code="PartitionStages",
        path="spec.parallelism",
        field=".partition",
        cel="!has(self.partition) || size(self.partition) == 0 || !has(self.pipeline) || "
        "size(self.partition) == self.pipeline",
        message="partition must have one number per pipeline stage; correct it, or remove pipeline",
        holds=partition_has_every_stage,
    ),
    Rule(
        code="FillWithoutBudget",
        path="spec.budget",
        field=".fill",
        cel="!self.fill || has(self.gpus) || has(self.nodes)",
        message="fill must come with gpus or nodes: it uses "
        "them up; set one of them, or remove fill",
        holds=_fill_has_a_budget,
    ),
    Rule(
        code="FillWithReplicas",
        path="spec",
        field=".replicas",
        cel="!has(self.budget) || !self.budget.fill || !has(self.replicas) || self.replicas == 0",
        message="replicas must be left out, or 0, with budget.fill, "
        "which chooses them; remove one of the two",
        holds=_fill_chooses_the_replicas,
    ),
    Rule(
        code="PinsExceedBudget",
        path="spec",
        field=".budget.gpus",
        cel="!has(self.budget) || !has(self.budget.gpus) || (has(self.parallelism) && "
        "has(self.parallelism.tensor) ? self.parallelism.tensor : 1) * (has(self.parallelism) "
        "&& has(self.parallelism.pipeline) ? self.parallelism.pipeline : 1) * "
        "(has(self.parallelism) && has(self.parallelism.dataParallelAttention) ? "
        "self.parallelism.dataParallelAttention : 1) * "
        "(has(self.replicas) ? self.replicas : 1) <= self.budget.gpus",
        message="budget.gpus must be at least parallelism.tensor x pipeline x "
        "dataParallelAttention x replicas; raise budget.gpus or lower one of them",
        holds=_within_gpu_budget,
    ),
    Rule(
        code="ScalingFills",
        path="spec",
        field=".scaling",
        cel="!has(self.scaling) || !has(self.budget) || !has(self.budget.fill) || "
        "!self.budget.fill",
        message="scaling must not be set with budget.fill: both choose the number of groups; "
        "remove one of the two",
        holds=_is_filled_or_scaled,
    ),
    Rule(
        code="ScalingExceedsBudget",
        path="spec",
        field=".scaling.maxReplicas",
        cel="!has(self.scaling) || !has(self.budget) || !has(self.budget.gpus) || "
        "(has(self.parallelism) && has(self.parallelism.tensor) ? self.parallelism.tensor : 1) * "
        "(has(self.parallelism) && has(self.parallelism.pipeline) ? self.parallelism.pipeline : 1)"
        " * (has(self.parallelism) && has(self.parallelism.dataParallelAttention) ? "
        "self.parallelism.dataParallelAttention : 1) * self.scaling.maxReplicas <= "
        "self.budget.gpus",
        message="budget.gpus must be at least parallelism.tensor x pipeline x "
        "dataParallelAttention x scaling.maxReplicas; raise budget.gpus or lower one of them",
        holds=_most_within_gpu_budget,
    ),
    Rule(
        code="ScalingBounds",
        path="spec.scaling",
        field=".minReplicas",
        cel="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
        message="minReplicas must be at most maxReplicas; lower it, or raise maxReplicas",
        holds=bounds_are_in_order,
    ),
    Rule(
        code="ScalingToZero",
        path="spec",
        field=".scaling.minReplicas",
        cel="!has(self.scaling) || !has(self.scaling.minReplicas) || "
        "self.scaling.minReplicas > 0 || (has(self.routing) && has(self.routing.mode) && "
        "self.routing.mode == 'Router')",
        message="scaling.minReplicas must be at least 1 without a router: nothing takes the "
        "request that would start a group; set routing.mode to Router, or leave minReplicas out",
        holds=_is_awake_or_routed,
    ),
    Rule(
        code="BadLabelKey",
        path="spec.placement.nodeSelector",
        field="",
        cel=f"self.all(key, size(key) <= {LABEL_KEY_MAX_LENGTH} && key.matches(r'{LABEL_KEY}'))",
        message="nodeSelector keys must be label keys: an optional prefix and a slash, then at "
        "most 63 letters, digits, "
        "'-', '_' or '.'; correct the key",
        holds=keys_are_label_keys,
    ),
    Rule(
        code="KueueWithoutQueue",
        path="spec.placement",
        field=".queue",
        cel="!has(self.scheduler) || self.scheduler != 'Kueue' || has(self.queue)",
        message="queue must be set with scheduler Kueue: it admits pods in a queue and nothing "
        "else; set queue to a "
        "LocalQueue of this namespace",
        holds=kueue_has_a_queue,
    ),
    Rule(
        code="QueueWithoutScheduler",
        path="spec.placement",
        field=".queue",
        cel="!has(self.queue) || (has(self.scheduler) && self.scheduler == 'Kueue')",
        message="queue must come with scheduler Kueue; set it or remove queue",
        holds=queue_has_a_scheduler,
    ),
    Rule(
        code="SchedulerNameNotUsed",
        path="spec.placement",
        field=".schedulerName",
        cel="!has(self.schedulerName) || (has(self.scheduler) && self.scheduler == 'Coscheduling')",
        message="schedulerName must come with scheduler Coscheduling: the others have a name of "
        "their own; remove schedulerName",
        holds=scheduler_is_a_plugin,
    ),
    Rule(
        code="KaiGroupsOnePod",
        path="spec.placement",
        field=".schedulerName",
        cel="!has(self.schedulerName) || self.schedulerName != 'kai-scheduler'",
        message="schedulerName must not be kai-scheduler: KAI makes groups of StatefulSets "
        "itself, and counts one pod as enough; "
        "use another scheduler",
        holds=scheduler_is_not_kai,
    ),
    Rule(
        code="TolerationValue",
        path="spec.placement.tolerations[]",
        field=".value",
        cel="self.operator != 'Exists' || !has(self.value)",
        message="value must not be set with operator Exists; remove value or use operator Equal",
        holds=exists_has_no_value,
    ),
    Rule(
        code="TolerationKey",
        path="spec.placement.tolerations[]",
        field=".key",
        cel="has(self.key) || self.operator == 'Exists'",
        message="key must be set unless operator is Exists; set key, or use operator Exists to "
        "tolerate every taint",
        holds=every_key_needs_exists,
    ),
    Rule(
        code="TolerationSeconds",
        path="spec.placement.tolerations[]",
        field=".tolerationSeconds",
        cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        message="tolerationSeconds must come with effect NoExecute; set that effect or remove "
        "tolerationSeconds",
        holds=seconds_need_no_execute,
    ),
    *POD_RULES,
    Rule(
        code="RoutingWithoutRouter",
        path="spec.routing",
        field=".mode",
        cel="(has(self.mode) && self.mode == 'Router') || !(has(self.replicas) || "
        "has(self.serviceAccountName))",
        message="replicas and serviceAccountName must come with mode Router: they are its pods'; "
        "set that mode or remove them",
        holds=routing.has_a_router_for_its_fields,
    ),
    Rule(
        code="PickerOfPool",
        path="spec.routing",
        field=".endpointPicker",
        cel="has(self.endpointPicker) == (has(self.mode) && self.mode == 'InferencePool')",
        message="endpointPicker must be set with mode InferencePool, and with no other; set or "
        "remove it",
        holds=routing.has_a_picker_where_one_picks,
    ),
    Rule(
        code="RouterWithoutVLLM",
        path="spec",
        field=".routing.mode",
        cel="!has(self.routing) || !has(self.routing.mode) || self.routing.mode != 'Router' || "
        "!has(self.engine) || !has(self.engine.name) || self.engine.name == 'vLLM'",
        message="routing.mode Router must come with engine.name vLLM, whose requests the router "
        "reads; use Service or InferencePool",
        holds=spec.routed_is_vllm,
    ),
    Rule(
        code="PhaseOfPlainKv",
        path="spec",
        field=".phase",
        cel=f"{_UNSPLIT} || ((!has(self.engine) || (!has(self.engine.speculation) && "
        "!has(self.engine.kvOffload))) && (!has(self.model.adapters) || "
        "size(self.model.adapters) == 0))",
        message="phase Prefill and Decode must not be set with engine.speculation, "
        "engine.kvOffload or model.adapters, whose K/V is not moved; remove them or leave phase "
        "out",
        holds=spec.half_has_plain_kv,
    ),
    Rule(
        code="PhaseWithPair",
        path="spec",
        field=".phase",
        cel=f"{_UNSPLIT} || !(has(self.scaling) || has(self.disaggregation))",
        message="phase Prefill and Decode must not be set with scaling or disaggregation: the "
        "halves of a pair are scaled together, and have none of their own; set replicas of both",
        holds=spec.half_is_by_itself,
    ),
    Rule(
        code="PhaseInStages",
        path="spec",
        field=".parallelism",
        cel=f"{_UNSPLIT} || {_ONE_STAGE}",
        message="parallelism must pin no pipeline above 1 with phase Prefill and Decode: the "
        "engine hands no K/V from stage to stage; remove the pin, or leave phase out",
        holds=spec.half_is_one_stage,
    ),
    Rule(
        code="PhaseRouted",
        path="spec",
        field=".routing.mode",
        cel=f"{_UNSPLIT} || !has(self.routing) || !has(self.routing.mode) || "
        "self.routing.mode == 'Service' || "
        "(self.phase == 'Decode' && self.routing.mode == 'Router')",
        message="routing.mode must be left out with phase Prefill, and Router or Service with "
        "Decode: the half that answers has the router of the pair; correct it",
        holds=spec.half_is_routed_where_it_answers,
    ),
    Rule(
        code="PairWithoutRouter",
        path="spec",
        field=".disaggregation.mode",
        cel=f"{_WHOLE} || (has(self.routing) && has(self.routing.mode) && "
        "self.routing.mode == 'Router')",
        message="disaggregation.mode Auto and On must come with routing.mode Router, which brings "
        "each prompt to a group of each kind; set it, or use Off",
        holds=spec.a_pair_has_a_router,
    ),
    Rule(
        code="PairGroups",
        path="spec.disaggregation",
        field=".prefillGroups",
        cel="(has(self.prefillGroups) == has(self.decodeGroups)) && "
        "(!has(self.prefillGroups) || (has(self.mode) && self.mode != 'Off'))",
        message="prefillGroups and decodeGroups must be set together, with mode Auto or On; set "
        "the other and the mode, or remove them",
        holds=disaggregation.groups_go_together,
    ),
    Rule(
        code="PairWithPipeline",
        path="spec",
        field=".parallelism",
        cel=f"{_WHOLE} || {_ONE_STAGE}",
        message="parallelism must pin no pipeline above 1 with disaggregation.mode Auto or On: the "
        "engine hands no K/V from stage to stage; remove the pin, or use Off",
        holds=spec.a_pair_has_no_stages,
    ),
    *(
        Rule(
            code="PairExcludes",
            path="spec",
            field=f".{field}",
            cel=f"{_WHOLE} || !({cel})",
            message=f"{field} must not be set with disaggregation.mode Auto or On: {why}; "
            "remove one of the two",
            holds=partial(_is_whole_or, without),
        )
        for field, cel, why, without in _NOT_APART
    ),
    Rule(
        code="RestartDelays",
        path="spec.restart",
        field=".maxDelaySeconds",
        cel="!has(self.maxDelaySeconds) || !has(self.delaySeconds) || self.maxDelaySeconds >= "
        "self.delaySeconds",
        message="maxDelaySeconds must be at least delaySeconds; raise it or lower delaySeconds",
        holds=delays_grow,
    ),
)
"""All rules; the order is the order of the messages."""
