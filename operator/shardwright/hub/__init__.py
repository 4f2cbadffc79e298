"""The only code that talks to the Hugging Face hub: the small files that say what a checkpoint is,
never its weights.

Three files say what a checkpoint is: its config, its quantization file and the index of its
tensors. ``checkpoint`` reads them, pinned to a commit, from the hub, a folder or the client's
cache. ``transport`` bounds a request in bytes, redirects and time, and sends the token to the named
hub alone.

The operator never calls this: for models that are known by their id alone a Job in the namespace of
the model does (``__main__``), which has the token and no right to anything in the cluster. It
leaves what it read as the termination message of its container.
"""
