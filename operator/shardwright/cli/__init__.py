"""The commands ``shardwright`` and ``kubectl shardwright``; the same pipeline as the operator."""
