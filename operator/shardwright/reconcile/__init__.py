"""What is the next step? Desired and observed to a decision; calls nothing, sleeps never, reads no
clock.

``next_step(snapshot, now)`` takes one frozen value with everything that was read about one model,
and returns the next step: a question to the planner, a write, something to remember, or the final
status. The shell carries it out, adds the result to the snapshot, and asks again until nothing is
left.

The rules of a group's life are drawn in ``members`` and stand in ``groups``,
``annotations`` and ``disruption``: a group starts, rolls and restarts as one, always by way of zero
pods. ``relocation`` moves the groups that stand on a fault and no others. ``record_object`` and
``record_trust`` decide which plan of record is believed.

Facts travel as enums and values; ``wording`` and ``model_status`` say them last, and nothing reads
them back. Time comes in as an argument and counts from when this process first saw a fact
(``first_seen``).
"""
