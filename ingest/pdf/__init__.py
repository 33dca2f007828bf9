"""PDF: words with their places, tables and columns, blocks in reading order, headings across the document."""
