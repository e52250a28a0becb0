"""Puts all pages of the site into build/docs, from where Zensical reads them."""

from docs.generator.staged import DOCS, ROOT, stage

stage(DOCS, ROOT / "build" / "docs")
