"""The operator process: kopf watches, wiring, metrics, health, leadership; no domain decisions."""
