"""HTML: a light tree, the page's content without its navigation, and that as Markdown."""
