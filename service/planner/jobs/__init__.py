"""Jobs: work that outlives a request, kept in a database so that it outlives the server too."""
