"""What do we have? Node objects to pools, domains and free GPUs; knows no model, schedules
nothing.
"""
