"""A report as text, on a terminal, as Markdown and as a page."""
