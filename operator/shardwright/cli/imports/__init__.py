"""Other controllers' models as ShardedModels: pure functions that also list what is left out."""
