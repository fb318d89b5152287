"""The studies behind the pages, one folder a question: its records, the calls that made them, their readings."""
