"""Makes the pages of what may be named: models, machines and parts, from the catalogue as `helm-list` prints it."""

from docs.generator.markdown import code, escaped, page, table

from helmsman.analysis.listing import listing
from helmsman.schemas.listing import Kind

_TITLES: dict[Kind, tuple[str, str]] = {
    "models": (
        "Models",
        "`--model NAME`. A Hugging Face directory, a `config.json`, a GGUF file or a plan may stand for a name.",
    ),
    "machines": (
        "Machines",
        "`--hw NAME`. Where each number of a machine comes from is in its record, and `helm-plan -v` prints it. "
        "[Add your own](../../how-to/add-machine.md).",
    ),
    "gpus": ("GPUs", "`--gpu NAME`, or `--gpu '2x NAME'`, beside `--cpu` and `--ram`."),
    "cpus": ("CPUs", "`--cpu NAME`, beside `--ram`."),
    "formats": ("Formats", "`--format NAME`. [Metrics](../../metrics.md) has their blocks."),
}


def catalogue_pages() -> dict[str, str]:
    """Return a page for each kind of names."""
    return {f"catalogue/{kind}.md": _page(kind) for kind in _TITLES}


def _page(kind: Kind) -> str:
    title, about = _TITLES[kind]
    rows = [(code(entry.name), escaped(entry.about)) for entry in listing(kind).entries]
    return page(title, about, table(("name", "about"), rows))
