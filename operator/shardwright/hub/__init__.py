"""The only code that talks to the Hugging Face hub: it reads the small files of a checkpoint, never
its weights.

Three files describe a checkpoint: its config, its quantization file and the index of its tensors.
``checkpoint`` reads them, pinned to a commit, from the hub, a folder or the client's cache.
``transfer`` bounds a request in bytes, redirects and time, and sends the token to the named hub
alone.

The operator never calls this: for models that are known by their id alone a Job in the namespace of
the model does (``__main__``), which has the token and no right to anything in the cluster. It
leaves their texts as the termination message of its container.
"""
