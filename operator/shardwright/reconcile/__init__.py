"""What is the next step? Desired and observed to a decision; calls nothing, sleeps never, reads no
clock.
"""
