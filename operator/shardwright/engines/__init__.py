"""How does an engine say it? Traits, guard rails and arguments; sizes nothing, decides nothing."""
