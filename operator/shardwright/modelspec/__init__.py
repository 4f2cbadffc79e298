"""What is this model? Facts from a ``config.json``, never guessed; knows no GPU and no engine."""
