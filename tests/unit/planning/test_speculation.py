"""How many tokens are drafted at which load, and from which load drafting loses."""

import json
import re
from dataclasses import replace
from importlib import resources

import pytest

from shardwright.costs.drafts import draft_weight_bytes
from shardwright.costs.estimator import Estimator
from shardwright.layouts.layout import Candidate, Drafter, DraftMethod, EngineTraits, Layout
from shardwright.layouts.placing import place
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.families import FAMILIES
from shardwright.modelspec.model_spec import PipelineRole
from shardwright.modelspec.read import read_predictor
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan
from shardwright.planning.request import Request
from shardwright.planning.shapes import shape_problems
from tests.support.builders_model import catalogued
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

CHOICES = tuple(range(1, 9))
SMALL = "meta-llama/Llama-3.2-1B"


def drafting() -> EngineTraits:
    return vllm_traits(drafter=Drafter(model=catalogued(SMALL)))


def predicting(model: str) -> EngineTraits:
    entry = find_model(model)
    layers = read_predictor(entry.config, source=model) if entry else None
    assert layers is not None
    head = (w for w in catalogued(model).weights if w.part is PipelineRole.HEAD)
    borrowed = tuple(weight for weight in head if weight.inputs > 1)
    embedding = tuple(
        weight for weight in catalogued(model).weights if weight.part is PipelineRole.EMBEDDING
    )
    drafter = Drafter(model=layers, method=DraftMethod.MTP, borrowed=borrowed, embedding=embedding)
    return vllm_traits(drafter=drafter)


def asked(concurrency: int, acceptance: float = 0.7, **changes: object) -> Request:
    request = a_request(tensor=1)
    workload = replace(
        request.workload,
        concurrency=concurrency,
        draft_tokens=max(CHOICES),
        draft_choices=CHOICES,
        draft_acceptance=acceptance,
    )
    return replace(request, workload=replace(workload, **changes))  # type: ignore[arg-type]


def planned(request: Request) -> Plan:
    found = make_plan(a_model(), an_inventory(a_pool()), request, drafting()).outcome
    assert isinstance(found, Plan)
    return found


def test_fewer_tokens_are_drafted_under_more_load() -> None:
    drafted = [planned(asked(load)).draft_tokens for load in (1, 16, 128)]

    assert drafted == sorted(drafted, reverse=True)
    assert drafted[0] > drafted[-1]


def test_more_tokens_are_drafted_where_more_are_accepted() -> None:
    drafted = [planned(asked(8, chance)).draft_tokens for chance in (0.1, 0.5, 0.9)]

    assert drafted == sorted(drafted)
    assert drafted[0] < drafted[-1]


@pytest.mark.parametrize("concurrency", [1, 32, 256])
def test_no_other_number_of_drafts_serves_more(concurrency: int) -> None:
    pool, layout, request = a_pool(), Layout(), asked(concurrency)
    candidate = Candidate(layout=layout, pool=pool, placement=place(pool, layout))

    def rate(choices: tuple[int, ...]) -> float:
        load = replace(request.workload, draft_choices=choices)
        found = Estimator(a_model(), load, drafting()).estimate(candidate)
        return found.performance.output_tokens_per_second

    assert rate(CHOICES) == max(rate((tokens,)) for tokens in CHOICES)


def test_a_number_that_is_stated_is_not_chosen() -> None:
    assert planned(asked(8, draft_tokens=3, draft_choices=())).draft_tokens == 0


def test_an_assumed_acceptance_widens_the_band() -> None:
    stated, assumed = (
        planned(asked(8, draft_tokens=3, draft_choices=(), draft_acceptance_band=band))
        for band in (0.0, 0.2)
    )

    low, high = 1 + 0.5 + 0.25 + 0.125, 1 + 0.9 + 0.81 + 0.729
    mean = 1 + 0.7 + 0.49 + 0.343
    assert assumed.performance.low == pytest.approx(stated.performance.low * low / mean)
    assert assumed.performance.high == pytest.approx(stated.performance.high * high / mean)
    assert any("is assumed (70% of them, 20% more or less" in w for w in assumed.warnings)


def said_of(request: Request) -> str:
    (said,) = (w for w in planned(request).warnings if w.startswith("speculation:"))
    return said


def test_a_plan_says_from_which_load_drafts_lose() -> None:
    request = asked(4, 0.6, draft_tokens=3, draft_choices=())
    found = re.search(r"from ([\d,]+) requests in flight on", said_of(request))
    assert found is not None
    limit = int(found[1].replace(",", ""))
    pool, layout = a_pool(), Layout()
    candidate = Candidate(layout=layout, pool=pool, placement=place(pool, layout))
    prices = Estimator(a_model(), request.workload, drafting())
    memory = prices.memory(candidate)

    def gain(in_flight: int) -> float:
        plain, drafted = (
            prices.token_seconds(candidate, memory, in_flight=in_flight, draft_tokens=tokens)
            for tokens in (0, 3)
        )
        return plain - drafted

    assert gain(limit) < 0 <= gain(limit - 1)


def test_a_plan_says_where_drafts_never_or_always_lose() -> None:
    assert "at any load that fits" in said_of(asked(4, 0.95))
    assert "at every load" in said_of(asked(4, 0.0))


def test_mtp_layers_run_beside_attention_replicas_and_share_their_experts() -> None:
    model, traits = "deepseek-ai/DeepSeek-V3", predicting("deepseek-ai/DeepSeek-V3")
    apart = Layout(attention_data=8, expert=8)

    assert shape_problems(catalogued(model), apart, traits) == ()
    assert traits.options.drafter is not None
    assert traits.options.drafter.layout(apart) == apart


def _staged(model: str) -> tuple[str, ...]:
    found = shape_problems(catalogued(model), Layout(tensor=8, pipeline=2), predicting(model))
    return tuple(problem.sentence() for problem in found)


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-397B-A17B"])
def test_mtp_layers_of_classes_that_say_so_run_beside_stages(model: str) -> None:
    assert _staged(model) == ()


def test_mtp_layers_of_other_classes_are_not_planned_beside_stages() -> None:
    (sentence,) = _staged("zai-org/GLM-4.5-Air")

    assert sentence == (
        "pipeline: 2 stages are not planned beside the MTP layer of Glm4MoeForCausalLM in vLLM "
        "0.33.0; use pipeline 1, or PromptLookup"
    )


def test_every_family_with_mtp_layers_was_asked_about() -> None:
    predicting_families = {name for name, family in FAMILIES.items() if family.predictor}

    table = resources.files("shardwright.engines").joinpath("vllm/data/contract-0.33.0.json")
    drafters = json.loads(table.read_text())["drafters"]

    assert {drafter["model"] for drafter in drafters} == predicting_families


def test_the_last_of_several_stages_holds_an_embedding_for_its_mtp_layers() -> None:
    model = catalogued("deepseek-ai/DeepSeek-V3")
    traits = predicting("deepseek-ai/DeepSeek-V3")
    one, two = (draft_weight_bytes(Layout(tensor=8, pipeline=stages), traits) for stages in (1, 2))

    assert two - one == 129_280 * 7168 * 2 // 8
    assert model.vocabulary == 129_280
