"""Documents as blocks, rendered as text, Markdown and HTML.

    blocks        headings, paragraphs, facts, tables, plots
    columns       fits cells to the columns of a terminal
    text          renders blocks for a terminal, plots as characters
    markdown      renders blocks as Markdown
    html          renders blocks as HTML, and self-contained pages
    svg           plots as SVG
    scale         axes and ticks

Text in blocks comes from runs and is untrusted; each renderer escapes it.
"""
