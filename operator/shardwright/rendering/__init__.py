"""Which objects is that? A plan to a bundle of Kubernetes objects; sizes nothing, reads no
cluster.
"""
