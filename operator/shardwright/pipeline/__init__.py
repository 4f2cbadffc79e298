"""How do the parts make a plan, and what becomes of it? Pure functions between question and life.

``assembly`` hands a resolved question to the planner and makes objects of the answer;
``extra_groups`` says how many groups fit, and where more would be. ``replanning`` asks again when
the number of groups or the nodes change, ``plan_cache`` whether that was asked before, and
``plan_upgrade`` whether a better plan may take the place of one that serves. ``documents`` are
plans for programs. Nothing here reads a cluster or a clock, and nothing decides when to write.
"""
