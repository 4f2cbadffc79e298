"""The only code that talks to the Hugging Face hub: the small files that say what a checkpoint is,
never its weights.
"""
