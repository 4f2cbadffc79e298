"""Say it to a person: text, tables, JSON; computes nothing, hides no number."""
