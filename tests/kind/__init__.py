"""A real kind cluster without a container registry: kubelets, containers, the operator as its
image.

`python -m tests.kind up` and `down`; docs/howto/demo.md says what it needs and what it leaves
alone.
"""
