"""What other controllers run, as ShardedModels: pure functions from their manifests to ours, with
what is left out.
"""
