"""What would it cost? Memory, communication, roofline, serving: arithmetic, no verdicts.

A candidate goes through ``estimator``: first ``memory`` (weights, K/V, activations and overheads of
the fullest rank of every stage, each in bytes), then ``work`` (FLOP and bytes that one step moves,
counted from the model's tensors), ``roofline`` (the seconds of one step on this GPU) and
``communication`` (the seconds on the links that are really used), then ``serving`` (what users see
under continuous batching, TTFT and TPOT in seconds).

What data sheets do not state is one small set of ``coefficients``, fitted on published measurements
by ``make fit``; every figure says whether it was measured, modelled or assumed.

Nothing is judged here: an estimate that does not fit is an estimate.
"""
