"""Models of other controllers as ShardedModels: pure functions of their manifests that also list
what is left out.
"""
