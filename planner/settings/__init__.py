"""Settings of other engines: their commands and files, written for a plan and read as a question. An engine is a file
here, with the version and the documentation that its flags are from."""
