"""What would it cost? Memory, communication, roofline, serving: arithmetic, no verdicts.

A candidate goes through ``estimator``: first ``memory`` (weights, K/V, activations and overheads of
the fullest rank of every stage, in bytes), then ``work`` (FLOP and bytes that one step moves),
``roofline`` (seconds of one step on this GPU) and ``communication`` (seconds on the links that are
really used), then ``speed`` (TTFT and TPOT in seconds under continuous batching).

What data sheets do not state is one small set of ``coefficients``, fitted on published measurements
by ``make fit``; every figure says whether it was measured, modelled or assumed.

Every public function states its formula, the unit of its result, how far it was found to be off (or
that this is assumed) and its source, with a worked number that is run. Those numbers start from the
same names: ``llama`` is Llama 70B (80 layers of 8,192, 64 heads, 8 K/V heads of 128, 28,672 wide,
128,256 tokens), ``qwen`` Qwen3-30B-A3B, ``h100`` a GPU of 80 GB, ``vllm`` version 0.33 and ``load``
64 requests of 2,048 + 512 tokens; ``on_h100s`` puts a layout on nodes of eight, ``task`` is
``llama`` under ``load`` there, with tensor 8, and ``frame`` what its memory is counted in with
tensor 4.
"""
