"""How the pages are executed, and when again."""
