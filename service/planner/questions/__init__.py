"""Questions of clients, read: names of the catalogue and documents, never files of the server."""
