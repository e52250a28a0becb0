"""Choice of a model for a machine: models, formats and contexts solved as a study, and the choice among them."""
