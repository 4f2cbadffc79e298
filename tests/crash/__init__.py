"""Every write of a model's life, lost or the operator's last one: `python -m tests.crash` on the
real control plane.
"""
