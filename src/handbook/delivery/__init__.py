"""How the pages reach a reader: styles and scripts, search, descriptions, the server, the ePub and the PDF."""
