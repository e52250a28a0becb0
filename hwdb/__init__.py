"""Knowledge about machines and models: the catalogue, loading, fitting."""
