"""Other engines of the user's environment, driven: found, started in fresh processes with settings that Helm writes,
measured beside each other, and beside what Helm had predicted of them.

Nothing of an engine is imported here: it runs in an interpreter of its own (`workers`), or is a program on the path."""
