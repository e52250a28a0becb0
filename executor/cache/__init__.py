"""Keys and values: as they are kept at home, as attention reads them, page by page where they do not fit."""
