"""Reads from SGLang's /metrics how much it has done; ``serving.py`` asks."""

DONE = (
    "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
    "sglang:realtime_tokens_total",
)


class Counters:
    """Counts tokens: of requests that have ended, and of those that run, every few steps.

    It has no open requests: those of other nodes are not told here, and what is told of them may
    be half a minute old. So the engine is asked for a token when none comes.
    """

    def read(self, metrics: str, _answers: int) -> tuple[float, float]:
        """Return the tokens so far and no open requests; before the first there are no counters."""
        lines = (line.rpartition(" ") for line in metrics.splitlines())
        return sum(float(value) for name, _, value in lines if name.partition("{")[0] in DONE), 0.0
