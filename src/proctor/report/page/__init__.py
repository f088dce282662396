"""A document as blocks, and its faces: the same content for a terminal, a wiki and a browser.

    blocks        headings, paragraphs, facts, tables, plots
    columns       cells fitted to the columns of a terminal
    text          blocks as lines of a terminal
    markdown      blocks as Markdown
    html          blocks as HTML, and whole pages that need nothing beside themselves
    svg           plots as pictures
    scale         numbers to places on an axis, and the ticks of it
    drawn         plots as characters

What stands in a block is text from runs and hostile; each face escapes it in its own way.
"""
