"""What is known about machines and models: the catalogue, loading, fitting."""
