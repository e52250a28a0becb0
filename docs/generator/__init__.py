"""Makes the pages of the documentation that follow from the code: commands, strategies, documents, library, catalogue.

They are made when the site is built and are not kept in the repository, so that they cannot be out of date. `make docs`
runs `python -m docs.generator` and then Zensical; `staged` says what goes where."""
