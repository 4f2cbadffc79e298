"""How can it be cut? Degrees times domains to candidates; prices nothing, judges nothing."""
