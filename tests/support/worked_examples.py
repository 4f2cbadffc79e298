"""What the worked numbers in the docstrings of ``shardwright.costs`` start from: two published
models, a GPU and an engine, by the names that the package's docstring explains.
"""

from collections.abc import Mapping

from shardwright.costs.estimator import Estimator
from shardwright.costs.memory import Frame, stage_holds
from shardwright.costs.working_memory import Device
from shardwright.costs.workload import Workload
from shardwright.hardware.gpus import load_gpus
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import place
from tests.support.builders_plan import a_model, a_pool, vllm_traits


def worked_examples() -> Mapping[str, object]:
    """Return the names that every worked number may use."""
    llama, load, vllm = a_model("llama-70b"), a_load(), vllm_traits()
    layout = Layout(tensor=4)
    frame = Frame(
        model=llama,
        layout=layout,
        holds=stage_holds(llama, layout, "auto", vllm),
        device=Device.of(on_h100s(layout)),
        traits=vllm,
        mean_tokens=load.input_tokens + load.output_tokens,
    )
    return {
        "Layout": Layout,
        "frame": frame,
        "h100": load_gpus()["H100-SXM-80GB"],
        "llama": llama,
        "qwen": a_model("qwen3-30b-a3b"),
        "load": load,
        "on_h100s": on_h100s,
        "task": Estimator(llama, load, vllm).task(on_h100s(Layout(tensor=8))),
        "vllm": vllm,
    }


def a_load() -> Workload:
    """Return 64 requests in flight, 2,048 tokens in and 512 out."""
    return Workload(input_tokens=2048, output_tokens=512, concurrency=64, max_model_len=3072)


def on_h100s(layout: Layout, nodes: int = 1) -> Candidate:
    """Return a layout on nodes of eight H100, NVLink inside and 400 Gbit/s a GPU between them."""
    pool = a_pool(nodes=nodes)
    return Candidate(layout=layout, pool=pool, placement=place(pool, layout))
