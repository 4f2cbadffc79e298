"""Reads from TensorRT-LLM's /metrics how much it has done; ``serving.py`` asks."""

import json


class Counters:
    """Counts iterations: the engine iterates as long as it has requests.

    /metrics tells every iteration once: one that somebody else has read is missing here, a later
    one is not. How many requests wait is not known while the engine stands still, so it is asked
    for a token then; an answer counts as one iteration more.
    """

    def __init__(self) -> None:
        self.iteration = 0

    def read(self, metrics: str, answers: int) -> tuple[float, float]:
        """Return the iterations so far and no open requests."""
        for entry in json.loads(metrics):
            told = entry if isinstance(entry, dict) else json.loads(entry)
            self.iteration = max(self.iteration, told.get("iter", 0))
        return self.iteration + answers, 0.0
