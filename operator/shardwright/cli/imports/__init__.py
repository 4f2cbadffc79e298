"""Models of other controllers, as ShardedModels: pure functions from their manifests to ours, with
a list of left-out parts.
"""
