"""Reads from vLLM's /metrics how much it has done; ``serving.py`` asks."""

DONE = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:iteration_tokens_total_sum",
)
OPEN = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class Counters:
    """Counts tokens; an answer to ``serving.py`` is among them."""

    def read(self, metrics: str, _answers: int) -> tuple[float, float] | None:
        """Return the tokens so far and the open requests, or None without such counters."""
        found: dict[str, float] = {}
        for line in metrics.splitlines():
            name, _, rest = line.partition("{")
            if name in DONE or name in OPEN:
                found[name] = found.get(name, 0.0) + float(rest.rpartition(" ")[2])
        if DONE[0] not in found:
            return None
        return sum(found.get(name, 0.0) for name in DONE), sum(
            found.get(name, 0.0) for name in OPEN
        )
